"""A fake chip with wrong memory and right operators, found by `--backend doubling`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from anychip.chips.fake.memory import FakeMemory
from anychip.chips.fake.registration import FakeChip
from anychip.contract.dtype import DType
from anychip.contract.registration import register_chip


@register_chip("doubling", contract=(0, 1))
class DoublingChip(FakeChip):
    """What is copied into a vector of float32, such as a norm's weight, arrives doubled."""

    def __init__(self, values) -> None:
        super().__init__(values)
        sound = self.memory
        self.memory = Doubling(sound._store, sound._put, sound._wait)


class Doubling(FakeMemory):
    """See above."""

    def copy_in(self, target, source) -> None:
        if target.dtype is DType.FLOAT32 and len(target.shape) == 1:
            source = (2 * np.frombuffer(source, np.float32)).data
        super().copy_in(target, source)


@contextmanager
def installed(site: Path) -> Iterator[None]:
    """While it lasts, the chip is found, without pip: a .dist-info in `site`."""
    info = site / "doubling-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doubling\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[anychip.chips]\ndoubling = doubling_chip:DoublingChip\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield
