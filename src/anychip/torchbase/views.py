"""Torch views of contract values. Nothing is copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from anychip.contract.cache import CacheView
from anychip.contract.dtype import DType
from anychip.contract.operators import Value
from anychip.contract.tensor import IndexPair, Tensor
from anychip.contract.weights import Weight
from anychip.torchbase.scaled import SCALED_DTYPES

TORCH_DTYPES: dict[DType, torch.dtype] = {
    DType.FLOAT32: torch.float32,
    DType.FLOAT16: torch.float16,
    DType.BFLOAT16: torch.bfloat16,
    DType.INT32: torch.int32,
    DType.INT8: torch.int8,
    DType.UINT8: torch.uint8,
    DType.BOOL: torch.bool,
}
NO_FLOAT64 = frozenset({"mps"})
"""Types of device that lack it."""


class IndexView(NamedTuple):
    """An index on both sides: int32 on the device, the same numbers in host memory."""

    device: torch.Tensor
    host: memoryview


class CacheViews(NamedTuple):
    """One layer's keys and values, [pages, page size, KV heads, head dim].

    latent > 0: the values are that many elements of the keys, from the first. held: of elements
    that have scales; then the views are bytes, and a vector's scale lies behind it.
    """

    k: torch.Tensor
    v: torch.Tensor
    latent: int = 0
    held: torch.dtype | None = None

    @property
    def halves(self) -> tuple[torch.Tensor, ...]:
        """What has memory of its own."""
        return (self.k,) if self.latent else (self.k, self.v)


def view_of(tensor: Tensor) -> torch.Tensor:
    """The tensor as torch sees it, over the bytes of its buffer.

    Raises ValueError where the buffer was freed or the offset is not a multiple of the itemsize.
    """
    raw, size = tensor.buffer.handle, tensor.dtype.itemsize
    if tensor.buffer.freed or not isinstance(raw, torch.Tensor):
        raise ValueError("a tensor's buffer was freed or belongs to another chip")
    if tensor.offset % size:
        raise ValueError(f"byte {tensor.offset} is no multiple of {size} ({tensor.dtype})")
    dtype = TORCH_DTYPES[tensor.dtype]
    if tensor.size == 0:
        return torch.empty(tensor.shape, dtype=dtype, device=raw.device)
    whole = raw[: tensor.buffer.nbytes // size * size].view(dtype)
    return torch.as_strided(whole, tensor.shape, tensor.strides, tensor.offset // size)


def _half_view(half: Tensor) -> torch.Tensor:
    """A half of a cache; bytes where its vectors have scales."""
    return view_of(replace(half, dtype=DType.UINT8) if half.dtype.is_scaled else half)


def value_view(value: Value | None) -> Any:
    """What a kernel takes for an argument: a view, IndexView, CacheViews, or None."""
    if isinstance(value, IndexPair):
        return IndexView(view_of(value.device), value.host)
    if isinstance(value, CacheView):
        group = value.spec.group
        k, v = (_half_view(half) for half in (value.k, value.v))
        return CacheViews(k, v, group.latent, SCALED_DTYPES.get(group.dtype))
    if isinstance(value, Weight):
        return None if value.dense is None else view_of(value.dense)
    return None if value is None else view_of(value)


def widest(device: torch.device) -> torch.dtype:
    """float64 where the device has it: sums of probabilities are taken in it."""
    return torch.float32 if device.type in NO_FLOAT64 else torch.float64
