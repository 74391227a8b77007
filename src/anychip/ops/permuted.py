"""Copies of tensors whose dimensions lie in another order than they are counted in: caches in HND.

Such a tensor spans its bytes without gaps; `memory.copy_in` and `copy_out` see it as a flat one.
"""

from __future__ import annotations

import numpy as np

from anychip.contract.memory import Memory
from anychip.contract.tensor import Buffer, Tensor
from anychip.hostops import array_view
from anychip.hostops.views import Array
from anychip.ops.staged import window


def write(memory: Memory, target: Tensor, values: Array) -> None:
    """Copy in `values`, of the target's shape and element size."""
    order = sorted(range(len(target.shape)), key=lambda d: -target.strides[d])
    laid_out = np.ascontiguousarray(values.transpose(order))
    memory.copy_in(window(target), laid_out.reshape(-1).view(np.uint8).data)


def read(memory: Memory, source: Tensor) -> Array:
    """Copy out: an array of the source's shape, contiguous."""
    raw = np.zeros(source.extent_bytes, np.uint8)
    memory.copy_out(window(source), raw.data)
    twin = Tensor(source.shape, source.dtype, source.strides, buffer=Buffer(raw, raw.nbytes))
    return np.ascontiguousarray(array_view(raw, twin))
