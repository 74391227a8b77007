"""What a recipe is written against: the tracing API as recipes see it.

A recipe is expanded at concrete sizes. What it returns is always a fresh, contiguous value, never
an argument or a view of one. Index arguments arrive as the int32 value of their device half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from anychip.contract.dtype import DType


class Value(Protocol):
    """A tensor that will exist when the program runs. Views cost nothing."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def dtype(self) -> DType:
        """Element type."""

    @property
    def is_contiguous(self) -> bool:
        """Whether `reshape` may be called."""

    def reshape(self, *sizes: int) -> Value:
        """The same elements in another shape; contiguous values only."""

    def transpose(self, *axes: int) -> Value:
        """Dimensions in another order."""

    def broadcast_to(self, *sizes: int) -> Value:
        """Dimensions of size 1 stretched."""

    def narrow(self, axis: int, start: int, length: int) -> Value:
        """A range of one dimension."""


class Weight(Protocol):
    """A weight argument; where a recipe is bound, its weights are dense."""

    @property
    def dense(self) -> Value:
        """[N, K], row-major."""


class Cache(Protocol):
    """A cache argument: k and v are [pages, page size, KV heads, head dim], four more where vectors
    have scales.

    They are contiguous in layout NHD; in HND they are with dimensions 1 and 2 exchanged. The v of a
    latent cache is a part of k.
    """

    @property
    def k(self) -> Value:
        """Keys."""

    @property
    def v(self) -> Value:
        """Values."""

    @property
    def page_size(self) -> int:
        """Slots of a page."""

    @property
    def head_dim(self) -> int:
        """Elements of a vector, without the scale that may lie behind it."""

    @property
    def latent(self) -> int:
        """Elements of a latent cache's keys that are its values; 0 for any other cache."""


class Ops(Protocol):
    """`ops.<operator>(inputs and attributes by name)` -> a Value, a tuple of them, or None."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The operator of that name."""
