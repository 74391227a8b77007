"""Compiles grammars to parsers, and keeps those that were used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import llguidance

from anychip.grammar.errors import GrammarError
from anychip.grammar.limits import GrammarLimits
from anychip.grammar.matcher import Matcher, plain
from anychip.grammar.translate import translate
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec

_STATE_BYTES = 1024
"""Measured, rounded up: what the lexer keeps for one state that it has met."""
_TEXT_FACTOR = 384
"""Measured, rounded up: bytes that a compiled grammar takes for one byte of its source."""


class Grammar:
    """One compiled grammar. Safe to use from several threads.

    bytes: an upper bound of what it keeps; the states of its lexer from its first matcher on.
    most_bytes: of what it may ever keep.
    """

    def __init__(self, tokens: Any, source: str, vocabulary: Vocabulary, states: int) -> None:
        self.eos_ids = vocabulary.eos_ids
        self.words = vocabulary.words
        self.bytes = _TEXT_FACTOR * len(source)
        self.most_bytes = self.bytes + _STATE_BYTES * states
        self._tokens = tokens
        self._source = source
        self._limits = llguidance.LLParserLimits(max_lexer_states=states, verbose_errors=False)
        self._lock = threading.Lock()
        self._fresh = self._compile()

    def matcher(self) -> Matcher:
        """A matcher at the beginning."""
        self.bytes = self.most_bytes
        return Matcher(self)

    def parser(self, worn: Any | None) -> Any:
        """The parser that matchers copy; compiled anew where it is the one that is worn out."""
        with self._lock:
            if worn is self._fresh:
                self._fresh = self._compile()
            return self._fresh

    def split(self, text: bytes) -> list[int]:
        """Tokens that write `text`, as the model's tokenizer splits it."""
        return list(self._tokens.tokenize_bytes(text))

    def _compile(self) -> Any:
        parser = llguidance.LLMatcher(self._tokens, self._source, log_level=0, limits=self._limits)
        if parser.is_error():
            raise GrammarError(plain(parser))
        return parser


class GrammarCompiler:
    """Compiles for one vocabulary. Thread-safe; a compile does not hold Python's lock.

    A grammar that GrammarCheck let pass compiles here in about the same time.
    """

    def __init__(self, vocabulary: Vocabulary, limits: GrammarLimits | None = None) -> None:
        self.vocabulary = vocabulary
        self.limits = limits or GrammarLimits()
        self._tokens = tokens_for(vocabulary)
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
        grammar = self._new(translate(spec, self.vocabulary, self.limits))
        with self._lock:
            return self._keep(spec, grammar)

    def compile_source(self, source: str) -> Grammar:
        """A grammar in llguidance's own words, not kept. Raises GrammarError."""
        return self._new(source)

    def _new(self, source: str) -> Grammar:
        return Grammar(self._tokens, source, self.vocabulary, self.limits.lexer_states)

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


class _Tokens:
    """A vocabulary as llguidance asks for it."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        padding = [b""] * (vocabulary.size - len(vocabulary.pieces))
        self.tokens = [*vocabulary.pieces, *padding]
        self.special_token_ids = sorted(vocabulary.special.values())
        self.eos_token_id = vocabulary.eos_ids[0]
        self._vocabulary = vocabulary

    def __call__(self, text: str | bytes) -> list[int]:
        spelled = text if isinstance(text, bytes) else text.encode("utf-8")
        return self._vocabulary.tokens_of(spelled)


def tokens_for(vocabulary: Vocabulary) -> Any:
    """llguidance's tokenizer: a trie of the vocabulary, built once."""
    return llguidance.LLTokenizer(_Tokens(vocabulary), eos_token=list(vocabulary.eos_ids))
