"""Token ids to text, as they arrive."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterable

from anychip.text.token_table import TokenTable


class Detokenizer:
    """Streams the text of a token sequence: the deltas and the flush, joined, are the text.

    Bytes that a later token may still complete to a character are held (at most three), so a
    replacement character is only ever written for bytes that no later token could mend.
    skip_special_tokens: special tokens write nothing, except those in `shown`, which what reads the
    text has to see. Nothing is ever put between tokens, so `spaces_between_special_tokens` has
    nothing to add or to leave out, as with every tokenizer that tokenizer.json describes.
    at_start: the tokens begin a text; False where they go on after a prompt, whose first token's
    leading space is then the writer's own and is kept.
    """

    def __init__(
        self,
        table: TokenTable,
        *,
        skip_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
        at_start: bool = True,
    ) -> None:
        self._table = table
        self._hidden = table.special - shown if skip_special_tokens else frozenset[int]()
        self._strip = at_start and table.strip_space
        self._held = b""  # the beginning of a character

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete; may be empty."""
        written = self._table.write(token_ids, self._hidden)
        if self._strip and written:
            self._strip = False
            written = written.removeprefix(b" ")
        if self._held:
            written = self._held + written
        text, used = utf_8_decode(written, "replace", False)
        self._held = written[used:]
        return text

    def flush(self) -> str:
        """What was held, now that nothing follows: one U+FFFD for a cut character, or nothing."""
        held, self._held = self._held, b""
        return held.decode("utf-8", "replace")
