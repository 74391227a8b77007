"""What the oracle reads and gives: host arrays, in float64 wherever a value is a float."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class CacheArrays:
    """One layer's cache on the host: k and v, [pages, page size, KV heads, head dim] each; where
    vectors have scales (`oracle.scaled`), four more in the last dimension.
    latent: as in CacheGroup; then v is a view of k, see `latent_arrays`.
    """

    k: Array
    v: Array
    latent: int = 0

    @property
    def page_size(self) -> int:
        """Slots of a page."""
        return int(self.k.shape[1])

    def mapped(self, change: Callable[[Array], Array]) -> CacheArrays:
        """Keys and values changed alike; those of a latent cache stay one."""
        if self.latent:
            return latent_arrays(change(self.k), self.latent)
        return CacheArrays(change(self.k), change(self.v))


def latent_arrays(k: Array, latent: int) -> CacheArrays:
    """A latent cache over its keys."""
    return CacheArrays(k, k[..., :latent], latent)


@dataclass(frozen=True, eq=False)
class Result:
    """outputs: in the signature's order, floats as unrounded float64, integers and bools exact.

    written: inputs that the operator changed, as they are afterwards, in their own dtype.
    """

    outputs: tuple[Array, ...]
    written: Mapping[str, Array | CacheArrays] = field(default_factory=dict)


Inputs = Mapping[str, Any]
"""Argument name -> array, CacheArrays for a cache, None where an optional one is absent."""
Attrs = Mapping[str, Any]
Oracle = Callable[[Inputs, Attrs], Result]


def is_float(array: Array) -> bool:
    """Whether the elements are floating point, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype == NUMPY_DTYPES[DType.BFLOAT16]


def wide(array: Array) -> Array:
    """Floats as float64; integers and bools as they are."""
    with np.errstate(invalid="ignore"):  # a NaN of the chip's is a finding, not a warning
        return array.astype(np.float64) if is_float(array) else array


def rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    """Float64 values that `dtype` can hold, nearest even."""
    return array.astype(dtype).astype(np.float64)
