"""Text to token ids and back, whichever file the vocabulary came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import tokenizers

from anychip.text.detokenizer import Detokenizer
from anychip.text.errors import TextError, require_unicode
from anychip.text.token_table import TokenTable


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
            return self.core.encode(text, add_special_tokens=add_special_tokens).ids
        ids = self.core.encode(text, add_special_tokens=False).ids
        return [*self.wrap.before, *ids, *self.wrap.after] if add_special_tokens else ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence; bytes that form no character become U+FFFD."""
        stream = self.detokenizer(skip_special_tokens=skip_special_tokens)
        return stream.feed(token_ids) + stream.flush()

    def detokenizer(
        self, *, skip_special_tokens: bool = True, at_start: bool = True
    ) -> Detokenizer:
        """A fresh stream; at_start=False for tokens that continue a prompt (see Detokenizer)."""
        return Detokenizer(self.table, skip_special_tokens=skip_special_tokens, at_start=at_start)
