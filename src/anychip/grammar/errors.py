"""What grammar/ raises. Every message is fit to be shown to the person who sent the grammar."""

from __future__ import annotations


class GrammarError(ValueError):
    """A grammar cannot be used (HTTP 400).

    text: why, and the way out. pointer: JSON pointer of the part at fault, inside of
    `GrammarSpec.text` where that is JSON ("" is the whole); None where there is no such place.
    """

    def __init__(self, text: str, pointer: str | None = None) -> None:
        super().__init__(f"at {pointer}: {text}" if pointer else text)
        self.text = text
        self.pointer = pointer

    def within(self, prefix: str) -> GrammarError:
        """The same error, seen from a document that holds this one at `prefix`."""
        return GrammarError(self.text, prefix + (self.pointer or ""))


def step(pointer: str, key: str | int) -> str:
    """The JSON pointer of `key` under `pointer` (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


class NotChecked(GrammarError):
    """A grammar was not judged, through no fault of its own: it may be sent again (HTTP 503)."""
