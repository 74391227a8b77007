"""Why a stop pattern is refused."""

from __future__ import annotations

from anychip.text.errors import TextError


class PatternError(TextError):
    """A stop pattern that is broken, not supported or too big; the text says what and where.

    index: which of the patterns of a request.
    """

    def __init__(self, text: str, index: int = 0) -> None:
        super().__init__(text)
        self.index = index
