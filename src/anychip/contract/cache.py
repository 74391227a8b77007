"""Cache memory: groups of layers whose keys and values share pages, or that keep a state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.contract.tensor import Shape, Tensor, TensorSpec

NHD = "NHD"
"""Layout [pages, page size, KV heads, head dim]: the one that compositions can read and write.
A chip that declares another layout serves `kv_write`, `kv_copy_pages` and `paged_attention`
natively, since writer and reader bind jointly to it."""

HND = "HND"
"""Layout [pages, KV heads, page size, head dim]: a head's keys of one page lie together."""

KNOWN_LAYOUTS = (NHD, HND)
"""Layouts whose bytes the core can read; any other is the chip's secret."""


@dataclass(frozen=True)
class CacheGroup:
    """Full-attention layers that share one page table. Other kinds join in later versions.

    latent > 0: there are no values of their own, they are the first `latent` elements of the keys,
    of which there is one head. Raises ValueError where that does not fit.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: DType
    page_size: int
    layout: str = NHD
    latent: int = 0

    def __post_init__(self) -> None:
        if self.latent and (self.kv_heads != 1 or not 0 < self.latent <= self.head_dim):
            raise ValueError(
                f"a latent cache has one KV head, not {self.kv_heads}, and values of 1 .. "
                f"{self.head_dim}, not {self.latent}"
            )

    @property
    def halves(self) -> int:
        """Tensors of a layer: keys and values, or keys alone."""
        return 1 if self.latent else 2

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        return self.halves * self.layers * self.layer_page_bytes

    @property
    def layer_page_bytes(self) -> int:
        """Bytes of one page's keys (or values) in one layer."""
        return self.page_size * self.kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True)
class CacheSpec:
    """One layer's cache before it has memory."""

    group: CacheGroup
    pages: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[pages, page size, KV heads, head dim], the logical order whatever the layout."""
        g = self.group
        return (self.pages, g.page_size, g.kv_heads, g.head_dim)

    @property
    def value_shape(self) -> tuple[int, int, int, int]:
        """`shape` of the values: narrower where they are a part of the keys."""
        *outer, dim = self.shape
        return (outer[0], outer[1], outer[2], self.group.latent or dim)

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Elements between neighbours, in the order of `shape`."""
        g = self.group
        page = g.page_size * g.kv_heads * g.head_dim
        if g.layout == HND:
            return (page, g.head_dim, g.page_size * g.head_dim, 1)
        return (page, g.kv_heads * g.head_dim, g.head_dim, 1)


@dataclass(frozen=True, eq=False)
class CacheView:
    """One layer's keys and values. Slot s is offset s % page size of page s // page size.

    k, v: of the spec's shape and strides, whatever the layout. The v of a latent cache is a view of
    k: of the spec's `value_shape` and the same strides.
    """

    spec: CacheSpec
    k: Tensor
    v: Tensor

    @property
    def halves(self) -> tuple[Tensor, ...]:
        """The tensors that have memory of their own."""
        return (self.k,) if self.spec.group.latent else (self.k, self.v)


def latent_view(spec: CacheSpec, k: Tensor) -> CacheView:
    """A latent cache over the memory of its keys."""
    return CacheView(spec, k, k.view(spec.value_shape, k.strides))


@dataclass(frozen=True)
class StatePart:
    """One tensor of a layer's recurrent state. shape: of one slot. name: its place in a layer."""

    name: str
    shape: Shape
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of one slot."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class StateGroup:
    """Layers that keep a state of fixed size for each sequence, in slots.

    A part is a plain tensor [slots, *shape] in each of the layers. Slot 0 is a sink, as page 0 is:
    what is written there is never read. layers: their numbers.
    """

    layers: tuple[int, ...]
    parts: tuple[StatePart, ...]

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot over all layers."""
        return len(self.layers) * sum(part.nbytes for part in self.parts)

    @property
    def largest_part(self) -> int:
        """Bytes of one slot in one layer of the largest part: they lie in one block."""
        return max(part.nbytes for part in self.parts)

    def tensors(self, slots: int) -> dict[str, TensorSpec]:
        """Every tensor by name, "layers.3.conv", with so many slots."""
        return {
            f"layers.{layer}.{part.name}": TensorSpec((slots, *part.shape), part.dtype)
            for layer in self.layers
            for part in self.parts
        }
