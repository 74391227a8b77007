"""Text to token ids and back, whichever file the vocabulary came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import tokenizers

from anychip.text.detokenizer import Detokenizer
from anychip.text.errors import TextError, require_unicode
from anychip.text.token_table import TokenTable

_SHRINK = 4
"""How much shorter UTF-8 may get where a tokenizer rewrites text: compatibility forms of four
bytes become one. Composition (NFC) shrinks by three at most."""


@dataclass(frozen=True)
class WrapIds:
    """Token ids put before and after every text that is encoded with its special tokens."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A vocabulary and how to split text into it. Safe to use from several threads.

    vocab_size: ids below this are legal. eos_ids: each of them ends an answer.
    special_tokens: bos_token, eos_token and the like, as the chat template names them.
    wrap: None where the tokenizer file itself says what surrounds a text.
    """

    core: tokenizers.Tokenizer
    table: TokenTable
    vocab_size: int
    eos_ids: frozenset[int] = frozenset()
    bos_id: int | None = None
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    wrap: WrapIds | None = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`. Special tokens spelled out in the text become their ids.

        A rendered chat already holds its special tokens: encode it with add_special_tokens=False.
        Raises TextError for a lone surrogate, with its position.
        """
        if not isinstance(text, str):
            raise TextError(f"text must be a string, not {type(text).__name__}")
        require_unicode(text, "text")
        if self.wrap is None:
            return self._split(text, add_special_tokens)
        ids = self._split(text, False)
        return [*self.wrap.before, *ids, *self.wrap.after] if add_special_tokens else ids

    def longest_text(self, tokens: int) -> int:
        """UTF-8 bytes of the longest text that could be `tokens` tokens: more need more tokens."""
        return tokens * self._token_bytes

    @cached_property
    def _token_bytes(self) -> int:
        longest = max(map(len, self.table.pieces), default=0)
        return max(longest, 1) * (_SHRINK if self._rewrites else 1)

    @property
    def _rewrites(self) -> bool:
        """Whether a token may stand for more text than it writes."""
        added = self.core.get_added_tokens_decoder().values()
        return self.core.normalizer is not None or any(t.lstrip or t.rstrip for t in added)

    def _split(self, text: str, add_special_tokens: bool) -> list[int]:
        # Of the library's ways to encode, only a batch leaves the GIL to other threads meanwhile;
        # the fast one leaves out the offsets, which nobody reads and which need most memory.
        batch = self.core.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return batch[0].ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence; bytes that form no character become U+FFFD."""
        stream = self.detokenizer(skip_special_tokens=skip_special_tokens)
        return stream.feed(token_ids) + stream.flush()

    def detokenizer(
        self,
        *,
        skip_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
        at_start: bool = True,
    ) -> Detokenizer:
        """A fresh stream; at_start=False for tokens that continue a prompt (see Detokenizer)."""
        return Detokenizer(
            self.table, skip_special_tokens=skip_special_tokens, shown=shown, at_start=at_start
        )

    def special_ids(self, texts: Iterable[str]) -> frozenset[int]:
        """Ids of the special tokens among `texts`, less those that end an answer."""
        found = (self._special.get(text.encode()) for text in texts)
        return frozenset(index for index in found if index is not None) - self.eos_ids

    @cached_property
    def _special(self) -> dict[bytes, int]:
        return {self.table.pieces[i]: i for i in self.table.special if i < len(self.table.pieces)}
