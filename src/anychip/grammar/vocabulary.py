"""The tokens that a mask is over: bytes of each, special ones, and those that end an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from anychip.grammar.errors import GrammarError

if TYPE_CHECKING:
    from anychip.text.tokenizer import Tokenizer

_ANCHOR = "\n"
"""A byte token in vocabularies that put a space before every text: what follows it has none."""


@dataclass(frozen=True)
class Vocabulary:
    """`pieces[id]` are the bytes that token `id` writes; ids from `len(pieces)` on, up to `size`,
    write nothing and are never allowed.

    special: ids that stand for no text (`<|im_end|>`), by the text that names them in a grammar.
    eos_ids: they end an answer, and are allowed where a grammar may end. split: text to ids as the
    model was trained to see it, without special tokens; None splits by the longest piece.
    """

    pieces: tuple[bytes, ...]
    special: dict[str, int]
    eos_ids: tuple[int, ...]
    size: int
    split: Callable[[str], Sequence[int]] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.eos_ids:
            raise GrammarError(
                "structured output needs an end-of-sequence token, and this model names none"
            )
        if self.size < len(self.pieces):
            raise GrammarError(
                f"the vocabulary has {len(self.pieces)} tokens, the model {self.size} logits"
            )

    @property
    def words(self) -> int:
        """int32 words of one mask."""
        return -(-self.size // 32)

    def tokens_of(self, text: bytes) -> list[int]:
        """Ids whose pieces join to exactly `text`, split as the model's tokenizer does where that
        is possible: a special token's spelling is split as text, and no space is put before."""
        if self.split is not None:
            spelled = text.decode("utf-8", "ignore")
            for before in ("", _ANCHOR):
                ids = list(self.split(before + spelled))
                skip = self._skip(ids, before.encode())
                if skip is not None and self._join(ids[skip:]) == text:
                    return ids[skip:]
        return self._longest(text)

    def _skip(self, ids: list[int], before: bytes) -> int | None:
        """How many ids the text in front takes; None where it shares one with what follows."""
        if not before:
            return 0
        for count in range(1, min(len(ids), 3) + 1):
            if self._join(ids[:count]).lstrip(b" ") == before:
                return count
        return None

    def _join(self, ids: Sequence[int]) -> bytes:
        special = self._special_ids
        return b"".join(b"" if i in special else self.pieces[i] for i in ids)

    def _longest(self, text: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(text):
            found = self._longest_at(text, at)
            if found is None:
                break  # a vocabulary without this byte: nothing past it can be forced
            ids.append(found)
            at += len(self.pieces[found])
        return ids

    def _longest_at(self, text: bytes, at: int) -> int | None:
        ids = self._by_piece
        for length in range(min(self._most, len(text) - at), 0, -1):
            found = ids.get(text[at : at + length])
            if found is not None:
                return found
        return None

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.special.values())

    @cached_property
    def _by_piece(self) -> dict[bytes, int]:
        plain = enumerate(self.pieces)
        return {piece: i for i, piece in plain if piece and i not in self._special_ids}

    @cached_property
    def _most(self) -> int:
        return max(map(len, self._by_piece), default=0)

    def special_at(self, text: str, at: int) -> str | None:
        """The longest name of a special token that `text` holds at `at`."""
        names = [name for name in self.special if name and text.startswith(name, at)]
        return max(names, key=len, default=None)


def vocabulary_of(tokenizer: Tokenizer, size: int) -> Vocabulary:
    """The vocabulary of a model with `size` logits. GrammarError where it names no end token."""
    table = tokenizer.table
    special = table.special | tokenizer.eos_ids
    return Vocabulary(
        pieces=table.pieces[:size],
        special={
            table.pieces[i].decode("utf-8", "replace"): i
            for i in sorted(special)
            if i < min(size, len(table.pieces))
        },
        eos_ids=tuple(sorted(i for i in tokenizer.eos_ids if i < size)),
        size=size,
        split=lambda text: tokenizer.encode(text, add_special_tokens=False),
    )
