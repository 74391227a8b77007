"""The chip under test: opened once, kept, and opened anew after an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.registration import Chip


class Subject:
    """A chip's class with a device and options (parsed, every declared one).

    Checks of one level share `chip`; what a check allocates on it, it frees.
    """

    def __init__(self, cls: type[Chip], device: int, options: Mapping[str, Any]) -> None:
        self.cls, self.device, self.options = cls, device, dict(options)
        self._chip: Chip | None = None

    @property
    def chip(self) -> Chip:
        """The opened device. Raises what the chip's `open` raises."""
        if self._chip is None:
            self._chip = self.fresh()
        return self._chip

    def fresh(self, **options: Any) -> Chip:
        """Open the device once more, some options changed; the caller closes it."""
        return self.cls.open(self.device, {**self.options, **options})

    def reopen(self) -> None:
        """Close the shared device, so that the next check opens it anew."""
        chip, self._chip = self._chip, None
        if chip is not None:
            chip.close()

    def close(self) -> None:
        """Close what is open."""
        self.reopen()
