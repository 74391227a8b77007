"""Why a pattern is refused."""

from __future__ import annotations


class PatternError(ValueError):
    """A pattern that is broken, not supported or too big; the text says what and where.

    index: which of several patterns.
    """

    def __init__(self, text: str, index: int = 0) -> None:
        super().__init__(text)
        self.index = index
