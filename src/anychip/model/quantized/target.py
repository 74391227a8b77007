"""A module that a group of compressed-tensors names, or does not quantize."""

from __future__ import annotations

from anychip.model.errors import CheckpointError
from anychip.model.quantized.settings import ORIGIN
from anychip.patterns.errors import PatternError
from anychip.patterns.whole import Whole

_PATTERN = "re:"


class Target:
    """A module's name, its class, or "re:" and a pattern for the beginning of its name.

    Patterns come with the folder, so they are held against names in linear time. Raises
    CheckpointError for one that is broken, or needs more than that.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._pattern: Whole | None = None
        if not text.startswith(_PATTERN):
            return
        try:
            self._pattern = Whole(text.removeprefix(_PATTERN))
        except PatternError as error:
            raise CheckpointError(f"{ORIGIN}: the pattern {text!r:.60}: {error}") from error

    def names(self, module: str) -> bool:
        """Whether it is about this module."""
        if self._pattern is None:
            return self.text == module
        return self._pattern.matches(module)
