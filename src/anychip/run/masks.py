"""Which tokens may follow, a bit each: by grammars, lists of allowed tokens, shortest lengths.

Made in a thread of their own while the network runs, which does not need them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt

from anychip.figures import GRAMMAR_SECONDS, Buckets
from anychip.plan import SlotStart
from anychip.request import NO_LOGPROBS, GrammarSpec

from .shaping import SlotShaping

Words = npt.NDArray[np.int32]
"""Token t is bit t % 32, counted from the lowest, of word t // 32."""

NOTHING_LEFT = (
    "no token may follow: allowed_token_ids, the grammar, bad_words and min_tokens leave none; "
    "loosen one of them"
)

ALL = np.int32(-1)
_BITS = 32


class GrammarBroken(ValueError):
    """A request's grammar cannot go on; the text says why."""


class Grammars(Protocol):
    """Grammars of running requests, by slot (`engine/grammars.py`). Not called from two threads at
    once. Each raises GrammarBroken."""

    def begin(self, slot: int, spec: GrammarSpec, output: Sequence[int]) -> None:
        """A slot is given to a request that has produced `output`."""

    def fill(self, slot: int, words: Words) -> None:
        """Write [W]: which tokens may follow; all of them where the answer is over."""

    def took(self, slot: int, token: int, *, most: int) -> tuple[int, ...]:
        """The token came next. Return up to `most` that have to follow, and take them too."""


def mask_words(vocabulary: int) -> int:
    """Words of a row's mask."""
    return -(-vocabulary // _BITS)


def mask_of(tokens: Iterable[int], words: int) -> Words:
    """[words]: the bits of these tokens."""
    bits = np.zeros(words * _BITS, bool)
    bits[list(tokens)] = True
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)


class _SlotMask:
    """One request's. ending: the tokens that end its answer."""

    def __init__(self, start: SlotStart, shaping: SlotShaping, words: int) -> None:
        self.slot, self.shaping = start.slot, shaping
        self.grammar = start.params.grammar
        allowed = start.params.allowed_token_ids
        self.allowed = mask_of(allowed, words) if allowed else None
        self.ending = mask_of(shaping.ending, words)
        self.broken = ""

    def fill(self, words: Words, grammars: Grammars | None) -> None:
        words[:] = ALL
        if self.grammar is not None and grammars is not None:
            grammars.fill(self.slot, words)
        if self.allowed is not None:
            words &= self.allowed
        banned = tuple(self.shaping.banned())
        if banned:  # here too: what is left may be none, and that has to be noticed
            words &= ~mask_of(banned, len(words))
        if self.shaping.too_short:
            longer = words & ~self.ending
            if longer.any() or self.grammar is None:  # a complete grammar ends the answer anyway
                words[:] = longer


class Masks:
    """Masks of the requests that have one, by slot."""

    def __init__(self, vocabulary: int, grammars: Grammars | None) -> None:
        self.words = mask_words(vocabulary)
        self._grammars = grammars
        self._slots: dict[int, _SlotMask] = {}
        self._thread: ThreadPoolExecutor | None = None
        self.seconds = Buckets()
        """What the masks of a step took."""

    def begin(self, start: SlotStart, shaping: SlotShaping) -> None:
        """A slot is given to a request that has a mask."""
        mask = self._slots[start.slot] = _SlotMask(start, shaping, self.words)
        if mask.grammar is None:
            return
        if self._grammars is None:
            raise ValueError("a request has a grammar, and nothing here knows grammars")
        try:
            self._grammars.begin(start.slot, mask.grammar, shaping.output)
        except GrammarBroken as error:
            mask.broken = str(error)

    def make(self, slots: Sequence[int], into: Words) -> Future[None]:
        """Begin to write a row for each of these slots, a negative one: everything may follow.

        [R, W]; wait for the result before the rows are read.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "masks")
        return self._thread.submit(self._make, slots, into)

    def took(self, slot: int, token: int) -> tuple[int, ...]:
        """Return the tokens that have to follow."""
        mask = self._slots[slot]
        if mask.grammar is None or mask.broken or self._grammars is None:
            return ()
        params = mask.shaping.params
        jump = mask.allowed is None and not params.bad_words and params.logprobs == NO_LOGPROBS
        try:
            room = params.max_tokens - len(mask.shaping.output) - 1
            return self._grammars.took(slot, token, most=room if jump else 0)
        except GrammarBroken as error:
            mask.broken = str(error)
            return ()

    def broken(self, slot: int) -> str:
        """Why the slot's request cannot go on; empty where it can."""
        return self._slots[slot].broken

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def _make(self, slots: Sequence[int], into: Words) -> None:
        begun = time.perf_counter()
        self._write(slots, into)
        self.seconds.observe(time.perf_counter() - begun, GRAMMAR_SECONDS)

    def _write(self, slots: Sequence[int], into: Words) -> None:
        for slot, words in zip(slots, into, strict=True):
            if slot < 0:
                words[:] = ALL
                continue
            mask = self._slots[slot]
            try:
                mask.fill(words, self._grammars)
                if not words.any():
                    mask.broken = mask.broken or NOTHING_LEFT
            except GrammarBroken as error:
                mask.broken = str(error)
            if mask.broken:
                words[:] = ALL  # its token is dropped
