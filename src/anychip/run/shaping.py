"""How what was produced so far shapes the next logits, by slot: penalties, bias, banned tokens.

Kept where the tokens are known first: with overlapped steps the scheduler plans ahead of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.plan import SlotStart

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

BANNED = -np.inf


@dataclass(frozen=True)
class Entries:
    """Logits that are changed, K of them: row and token of each, and how; see `adjust_logits`."""

    rows: Ints
    ids: Ints
    repetition: Floats
    bias: Floats


def _no_entries() -> Entries:
    ints, floats = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return Entries(ints, ints, floats, floats)


NO_ENTRIES = _no_entries()


def join_entries(found: Sequence[Entries]) -> Entries:
    """Those of several rows in one."""
    if not found:
        return NO_ENTRIES
    return Entries(
        np.concatenate([one.rows for one in found]),
        np.concatenate([one.ids for one in found]),
        np.concatenate([one.repetition for one in found]),
        np.concatenate([one.bias for one in found]),
    )


class SlotShaping:
    """One request's: the tokens that its parameters or its output single out.

    Entry n is of token `_ids[n]`. `_base` is its logit_bias, `_seen` whether prompt or output have
    it, `_counts` how often the output does. A token once singled out stays so.
    """

    def __init__(self, start: SlotStart, ending_ids: frozenset[int], vocabulary: int) -> None:
        """ending_ids: tokens that end an answer by themselves. Those that the model has no logit
        for, as a tokenizer may have, need no ban."""
        params = start.params
        self.params = params
        self.output = list(start.tokens[start.prompt_length :])
        ending = {*params.stop_token_ids, *(() if params.ignore_eos else ending_ids)}
        self.ending = tuple(sorted(token for token in ending if token < vocabulary))
        self._bad_words = [list(word) for word in params.bad_words if word[-1] < vocabulary]
        self._places: dict[int, int] = {}
        room = 2 * len(start.tokens) + len(params.logit_bias) + 64
        self._ids = np.zeros(room, np.int32)
        self._base, self._seen, self._counts = np.zeros((3, room), np.float32)
        for token, bias in params.logit_bias:
            self._base[self._place(token)] = bias
        if params.repetition_penalty != 1.0:
            for token in set(start.tokens):
                self._seen[self._place(token)] = 1.0
        for token in self.output:
            self._count(token)

    @property
    def too_short(self) -> bool:
        """Whether the answer must not end yet."""
        return len(self.output) < self.params.min_tokens

    def took(self, token: int) -> None:
        """The output has one token more."""
        self.output.append(token)
        self._count(token)

    def entries(self, row: int) -> Entries:
        """What changes in a row of logits, and how."""
        banned = [self._place(token) for token in self.banned()]
        count, params = len(self._places), self.params
        counts = self._counts[:count]
        bias = self._base[:count] - np.float32(params.frequency_penalty) * counts
        bias -= np.float32(params.presence_penalty) * (counts > 0)
        bias[banned] = BANNED
        repetition = np.where(self._seen[:count] > 0, np.float32(params.repetition_penalty), 1.0)
        rows = np.full(count, row, np.int32)
        return Entries(rows, self._ids[:count], repetition.astype(np.float32), bias)

    def banned(self) -> Iterable[int]:
        """Tokens that must not come next. With a mask, the ending ones are its business."""
        for *before, last in self._bad_words:
            if self.output[max(0, len(self.output) - len(before)) :] == before:
                yield last
        if self.too_short and not self.params.rules_tokens_out:
            yield from self.ending

    def _count(self, token: int) -> None:
        params = self.params
        if params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0:
            place = self._place(token)
            self._seen[place] = 1.0
            self._counts[place] += 1.0

    def _place(self, token: int) -> int:
        """The token's entry, made where there is none."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            grown = np.zeros(place, np.float32)
            self._ids = np.concatenate([self._ids, np.zeros(place, np.int32)])
            self._base = np.concatenate([self._base, grown])
            self._seen = np.concatenate([self._seen, grown])
            self._counts = np.concatenate([self._counts, grown])
        self._ids[place] = token
        return place
