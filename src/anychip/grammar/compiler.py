"""Compiles grammars, and keeps those that were used last."""

from __future__ import annotations

import threading
from collections import OrderedDict

from anychip.grammar.backend import LLGUIDANCE, Grammar, open_backend
from anychip.grammar.limits import GrammarLimits
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec


class GrammarCompiler:
    """Compiles for one vocabulary. Thread-safe.

    A grammar that GrammarCheck let pass compiles here in about the same time.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        limits: GrammarLimits | None = None,
        backend: str = LLGUIDANCE,
    ) -> None:
        self.limits = limits or GrammarLimits()
        self.backend = open_backend(backend, vocabulary, self.limits)
        self._lock = threading.Lock()
        self._kept: OrderedDict[GrammarSpec, Grammar] = OrderedDict()

    @property
    def cached_bytes(self) -> int:
        """Upper bound of what the kept grammars take, in bytes; under the limit after a compile."""
        return sum(grammar.bytes for grammar in tuple(self._kept.values()))

    @property
    def cached(self) -> int:
        """How many grammars are kept."""
        return len(self._kept)

    def compile(self, spec: GrammarSpec) -> Grammar:
        """The grammar of `spec`, from the cache where it is there. Raises GrammarError."""
        with self._lock:
            found = self._kept.get(spec)
            if found is not None:
                self._kept.move_to_end(spec)
                self._trim()
                return found
        grammar = self.backend.grammar(self.backend.source(spec))
        with self._lock:
            return self._keep(spec, grammar)

    def _keep(self, spec: GrammarSpec, grammar: Grammar) -> Grammar:
        """Keep it, unless another thread was faster; what was used longest ago has to go."""
        kept = self._kept.get(spec)
        if kept is not None:
            return kept
        if grammar.most_bytes > self.limits.cache_bytes:
            return grammar  # it would push out all others and still not fit
        self._kept[spec] = grammar
        self._trim()
        return grammar

    def _trim(self) -> None:
        size = self.cached_bytes
        while size > self.limits.cache_bytes:
            _, dropped = self._kept.popitem(last=False)
            size -= dropped.bytes
