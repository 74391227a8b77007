"""Weight-only schemes in one shape: codes, and for each group along K a scale and a zero point.

GPTQ, AWQ and compressed-tensors differ in how they lay these out in tensors; x = s * (q - z) is
the same. What the contract's grouped formats hold exactly stays in its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychip.contract.formats import GROUPS, Grouped
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.formats import Bytes, Floats
from anychip.model.packing.grouped import pack_groups
from anychip.model.quantized.linear import Linear

_ROWS = 256
"""Rows at once, where scales are spread over columns."""

Index = npt.NDArray[Any]
"""[K]: the group of each column."""


@dataclass(frozen=True)
class Groups:
    """A weight [N, K] of which every `group` columns share a scale; the last may be fewer.

    codes: [N, K], 0 to 2 ** bits - 1. scales: float32 [N, groups]. zeros: [N, groups] as codes
    are. index: the group of each column where they are in no order; None: column // group.
    """

    bits: int
    shape: Shape
    group: int
    codes: Callable[[], Bytes]
    scales: Callable[[], Floats]
    zeros: Callable[[], Bytes]
    index: Index | None = None

    @property
    def count(self) -> int:
        """Groups along K."""
        return -(-self.shape[1] // self.group)

    def linear(self, tensors: tuple[str, ...], nbytes: int, *, half_scales: bool) -> Linear:
        """As one weight. half_scales: the scales are float16 in the file, hence exact in it."""
        kind, order = self._kind()
        name = f"int{self.bits} in groups of {self.group}"
        if kind is None:
            return Linear(name, self.shape, tensors, nbytes, None, self.values)
        if not half_scales and not _halves(self.scales()):
            name = f"int{self.bits} with scales beyond float16"
            return Linear(name, self.shape, tensors, nbytes, None, self.values)
        found, head = kind, b"" if order is None else order.tobytes()

        def exact() -> HostWeight:
            return self._packed(found, order)

        return Linear(found.name, self.shape, tensors, nbytes, exact, self.values, head)

    def values(self) -> Floats:
        """float32 [N, K] by the definition."""
        index, zeros, scales = self._columns(), self.zeros(), self.scales()
        values = self.codes().astype(np.float32)
        for first in range(0, len(values), _ROWS):
            rows = slice(first, first + _ROWS)
            values[rows] -= zeros[rows][:, index]
            values[rows] *= scales[rows][:, index]
        return values

    def _columns(self) -> Index:
        return self._in_order() if self.index is None else self.index

    def _in_order(self) -> Index:
        """A group of more columns than there are is one of all of them; numpy takes no such."""
        return np.arange(self.shape[1]) // min(self.group, self.shape[1])

    def _kind(self) -> tuple[Grouped | None, Index | None]:
        """The format that holds it and the order of its columns; None where none does."""
        columns = self.shape[1]
        index = self._columns()
        sizes = (g for g in sorted(GROUPS, reverse=True) if not (self.group % g or columns % g))
        size = next(sizes, None)
        if size is None:
            return None, None
        if np.array_equal(index, self._in_order()):
            return Grouped(self.bits, size), None
        counts = np.bincount(index, minlength=self.count)
        if (counts != self.group).any():
            return None, None
        return Grouped(self.bits, size, ordered=True), np.argsort(index, kind="stable").astype(
            "<i4"
        )

    def _packed(self, kind: Grouped, order: Index | None) -> HostWeight:
        codes, coarse = self.codes(), self._in_order()[:: kind.group]
        head = b""
        if order is not None:
            codes, head = codes[:, order], order.tobytes()
        rows = pack_groups(kind, codes, self.scales()[:, coarse], self.zeros()[:, coarse])
        raw = np.concatenate([np.frombuffer(head, np.uint8), rows]) if head else rows
        return HostWeight(kind.name, self.shape, raw.data.toreadonly())


def _halves(scales: Floats) -> bool:
    """Whether float16 holds them exactly."""
    with np.errstate(over="ignore"):
        return bool((scales.astype(np.float16).astype(np.float32) == scales).all())
