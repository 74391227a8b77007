"""Grammars of the engine: compiled off the loop, then followed token by token."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from anychip.grammar.errors import GrammarError
from anychip.grammar.vocabulary import vocabulary_of
from anychip.request import GrammarSpec
from anychip.run.masks import GrammarBroken, Words

if TYPE_CHECKING:
    from anychip.grammar.backend import Grammar, Matcher
    from anychip.grammar.compiler import GrammarCompiler

_THREADS = 2


class EngineGrammars:
    """What the runner asks of grammars (`run.masks.Grammars`), and the compiles before.

    tokenizer: where it lies; the engine needs it for nothing else and opens it with the first
    grammar. vocab_size: logits of a row. backend: what
    computes masks. jump_forward: whether forced tokens are told.
    """

    def __init__(
        self, tokenizer: Path, vocab_size: int, backend: str, *, jump_forward: bool = True
    ) -> None:
        self._tokenizer, self._vocab_size, self._backend = tokenizer, vocab_size, backend
        self._jump_forward = jump_forward
        self._matchers: dict[int, Matcher] = {}
        self._opening = threading.Lock()

    def compiler(self) -> GrammarCompiler:
        """The vocabulary's compiler, made on first use."""
        with self._opening:
            return self._compiler

    @cached_property
    def _compiler(self) -> GrammarCompiler:
        # Much to load, and most servers never see a grammar.
        from anychip.grammar.compiler import GrammarCompiler
        from anychip.text.load import open_tokenizer

        tokenizer = open_tokenizer(self._tokenizer)
        vocabulary = vocabulary_of(tokenizer, self._vocab_size)
        return GrammarCompiler(vocabulary, backend=self._backend)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, "grammar")

    def compile(self, spec: GrammarSpec) -> Future[Grammar]:
        """Compile in a thread; the result raises GrammarError."""
        return self._threads.submit(lambda: self.compiler().compile(spec))

    def begin(self, slot: int, spec: GrammarSpec, output: Sequence[int]) -> None:
        """A slot is given to a request that has produced `output`."""
        try:
            matcher = self.compiler().compile(spec).matcher()
            self._matchers[slot] = matcher
            for token in output:
                _accept(matcher, token)
        except GrammarError as error:
            raise GrammarBroken(str(error)) from error

    def fill(self, slot: int, words: Words) -> None:
        """Write which tokens may follow."""
        try:
            self._matchers[slot].fill(words)
        except GrammarError as error:
            raise GrammarBroken(str(error)) from error

    def took(self, slot: int, token: int, *, most: int) -> tuple[int, ...]:
        """The token came next; return up to `most` that have to follow, taken too."""
        matcher = self._matchers[slot]
        try:
            _accept(matcher, token)
            if most < 1 or not self._jump_forward:
                return ()
            forced = matcher.forced()[:most]
            for one in forced:
                _accept(matcher, one)
        except GrammarError as error:
            raise GrammarBroken(str(error)) from error
        return forced

    def close(self) -> None:
        """End the threads; a compile under way is waited for."""
        if "_threads" in self.__dict__:
            self._threads.shutdown(cancel_futures=True)


def _accept(matcher: Matcher, token: int) -> None:
    if not matcher.accept(token):
        raise GrammarBroken(f"token {token} breaks the grammar, though its mask allowed it")
