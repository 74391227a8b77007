"""Symbols of a program: values, and the weights and caches that come from outside it."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.contract.cache import CacheSpec
from anychip.contract.dtype import DType
from anychip.contract.tensor import Shape, TensorSpec, contiguous_strides
from anychip.contract.weights import WeightSpec


@dataclass(frozen=True)
class Storage:
    """Memory that values view. kind: "arena" (made and freed within the program), or what the
    program is given: "index", "input", "constant", "weight", "cache", "state"; key: which one."""

    kind: str
    key: str
    nbytes: int


@dataclass(frozen=True, eq=False)
class Value:
    """A view of a storage. Views cost nothing. offset: elements from the storage's start."""

    storage: Storage
    spec: TensorSpec
    offset: int = 0

    @property
    def shape(self) -> Shape:
        """Sizes."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.spec.dtype

    @property
    def is_contiguous(self) -> bool:
        """Whether it is row-major without gaps."""
        return self.spec.is_contiguous

    def _view(self, shape: Shape, strides: Shape, offset: int = 0) -> Value:
        spec = TensorSpec(shape, self.dtype, strides)
        return Value(self.storage, spec, self.offset + offset if spec.size else 0)

    def reshape(self, *sizes: int) -> Value:
        """The same elements in another shape. A strided value must keep its first dimension and
        have contiguous rows; ValueError otherwise."""
        if self.spec.size != TensorSpec(sizes, self.dtype).size:
            raise ValueError(f"reshape: {self.shape} to {sizes}")
        if self.is_contiguous:
            return self._view(sizes, contiguous_strides(sizes))
        if not self.spec.has_contiguous_rows or sizes[0] != self.shape[0]:
            raise ValueError(f"reshape: a view of shape {self.shape}, strides {self.spec.strides}")
        return self._view(sizes, (self.spec.strides[0], *contiguous_strides(sizes[1:])))

    def transpose(self, *axes: int) -> Value:
        """Dimensions in another order."""
        pick = self.spec
        return self._view(tuple(pick.shape[a] for a in axes), tuple(pick.strides[a] for a in axes))

    def narrow(self, axis: int, start: int, length: int) -> Value:
        """`length` elements of one dimension from `start`."""
        if not 0 <= start <= start + length <= self.shape[axis]:
            raise ValueError(f"narrow: {start} + {length} in a dimension of {self.shape[axis]}")
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        return self._view(shape, self.spec.strides, start * self.spec.strides[axis])

    def broadcast_to(self, *sizes: int) -> Value:
        """Stretch dimensions of size 1 with stride 0; new ones come in front."""
        lead = len(sizes) - len(self.shape)
        strides = []
        for axis, size in enumerate(sizes):
            have = self.shape[axis - lead] if axis >= lead else 1
            if have not in (1, size):
                raise ValueError(f"broadcast: {self.shape} to {sizes}")
            strides.append(self.spec.strides[axis - lead] if have == size and axis >= lead else 0)
        return self._view(sizes, tuple(strides))


@dataclass(frozen=True, eq=False)
class WeightRef:
    """A packed weight by name."""

    name: str
    spec: WeightSpec

    @property
    def dense(self) -> Value:
        """Its plain tensor [N, K]; ValueError where the chip packed it otherwise."""
        if not self.spec.dense:
            raise ValueError(f"weight '{self.name}' is packed as {self.spec.format}")
        spec = TensorSpec(self.spec.shape, DType(self.spec.format))
        return Value(Storage("weight", self.name, spec.nbytes), spec)


@dataclass(frozen=True, eq=False)
class CacheRef:
    """One layer's cache."""

    layer: int
    spec: CacheSpec

    @property
    def page_size(self) -> int:
        """Positions a page."""
        return self.spec.group.page_size

    @property
    def head_dim(self) -> int:
        """Elements of a vector, without the scale that may lie behind it."""
        return self.spec.group.head_dim

    @property
    def latent(self) -> int:
        """Elements of a latent cache's keys that are its values; 0 for any other cache."""
        return self.spec.group.latent

    @property
    def k(self) -> Value:
        """Keys [pages, page size, KV heads, head dim], strided as the layout is; of a scaled cache
        with the bytes of each vector's scale behind it."""
        return self._half("k")

    @property
    def v(self) -> Value:
        """Values, same shape; of a latent cache a part of the keys."""
        return self.k.narrow(3, 0, self.latent) if self.latent else self._half("v")

    def _half(self, half: str) -> Value:
        spec = TensorSpec(self.spec.held_shape, self.spec.group.dtype, self.spec.strides)
        return Value(Storage("cache", f"{self.layer}.{half}", spec.nbytes), spec)


Ref = Value | WeightRef | CacheRef


def given(kind: str, key: str, shape: Shape, dtype: DType) -> Value:
    """A value that the program is given: an index, an input or a constant."""
    spec = TensorSpec(shape, dtype)
    return Value(Storage(kind, key, spec.nbytes), spec)
