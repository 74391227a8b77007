"""A tensor is (buffer, byte offset, shape, strides, dtype). The core never sees an address."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from anychip.contract.dtype import DType

Shape = tuple[int, ...]


def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorSpec:
    """What is known of a tensor before it has memory. Strides are in elements, 0 broadcasts."""

    shape: Shape
    dtype: DType
    strides: Shape = ()

    def __post_init__(self) -> None:
        if not self.strides and self.shape:
            object.__setattr__(self, "strides", contiguous_strides(self.shape))

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a contiguous tensor of this shape."""
        return self.size * self.dtype.itemsize

    @cached_property
    def is_contiguous(self) -> bool:
        """Row-major without gaps; the stride of a dimension of size 1 does not matter."""
        return self.size == 0 or _matches(self.shape, self.strides, contiguous_strides(self.shape))

    @property
    def has_contiguous_rows(self) -> bool:
        """All but the first dimension are row-major without gaps: rows may lie apart."""
        if self.size == 0 or len(self.shape) < 2:
            return self.is_contiguous
        inner = TensorSpec(self.shape[1:], self.dtype, self.strides[1:])
        return inner.is_contiguous


def _matches(shape: Shape, strides: Shape, wanted: Shape) -> bool:
    return all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


@dataclass(eq=False)
class Buffer:
    """One allocation. `handle` belongs to the chip that made it: an address, an object, an id."""

    handle: Any
    nbytes: int
    freed: bool = False


@dataclass(frozen=True, eq=False)
class Tensor(TensorSpec):
    """A view of a buffer. `offset` is in bytes; several tensors may share one buffer.

    Two tensors are equal when they are the same object, whatever their specs say.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    buffer: Buffer = field(default_factory=lambda: Buffer(None, 0))
    offset: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        end = self.offset + self.extent_bytes
        if self.offset < 0 or end > self.buffer.nbytes:
            raise ValueError(
                f"a {self.dtype} view of shape {self.shape} at byte {self.offset} ends at byte "
                f"{end}, past its buffer of {self.buffer.nbytes} bytes"
            )

    @property
    def extent_bytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if self.size == 0:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.dtype.itemsize

    @property
    def spec(self) -> TensorSpec:
        """The same without memory."""
        return TensorSpec(self.shape, self.dtype, self.strides)

    def view(self, shape: Shape, strides: Shape = (), offset: int = 0) -> Tensor:
        """Another view of the buffer; `offset` counts elements from this view's start."""
        start = self.offset + offset * self.dtype.itemsize
        return Tensor(shape, self.dtype, strides, buffer=self.buffer, offset=start)


@dataclass(frozen=True, eq=False)
class IndexPair:
    """Indices or lengths known on both sides: host integers and an int32 device tensor.

    host: a writable view of int32, row-major, same number of elements as `device`. The runner
    fills both once a step. An implementation that reads `host` says so (`reads_host`) and
    cannot be captured statically.
    """

    host: memoryview
    device: Tensor

    @property
    def spec(self) -> TensorSpec:
        """Shape of the device half."""
        return self.device.spec
