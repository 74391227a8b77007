"""Cache memory: groups of layers whose keys and values share pages."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.contract.tensor import Tensor

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
    """Full-attention layers that share one page table. Other kinds join in later versions."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: DType
    page_size: int
    layout: str = NHD

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        return 2 * self.layers * self.layer_page_bytes

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

    k, v: of the spec's shape and strides, whatever the layout.
    """

    spec: CacheSpec
    k: Tensor
    v: Tensor
