"""What a grid is made of: dimensions, and families of operators that share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, scaled, without
from anychip.ops.oracle.arrays import Array

Sizes = Mapping[str, int]
"""A size for every dimension of an operator."""

Arrays = dict[str, Any]
"""Input -> array, CacheArrays for a cache, None where an optional one is absent."""

Controls = Callable[[Case], Control | None]
"""A case without a control -> a change that must show, None where there is nothing to compare."""


@dataclass(frozen=True)
class Dimension:
    """One size that can be varied. sizes: those to try while all others are at their default."""

    name: str
    default: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """Operators whose calls have the same dimensions.

    inputs: arrays of given sizes; ValueError where they do not go together. crossed: extremes to
    try together.
    """

    dimensions: tuple[Dimension, ...]
    inputs: Callable[[str, Draw, Sizes], Arrays]
    control: Controls
    attrs: Callable[[Sizes], dict[str, Any]] = lambda sizes: {}
    crossed: tuple[Sizes, ...] = ()

    def complete(self, op: str, sizes: Sizes) -> dict[str, int]:
        """The sizes with defaults filled in. Raises ValueError for what does not exist."""
        known = {d.name: d for d in self.dimensions}
        for name, size in sizes.items():
            if name not in known:
                raise ValueError(f"{op} has no dimension '{name}': it has {', '.join(known)}")
            least = 0 if 0 in (known[name].default, *known[name].sizes) else 1
            if size < least:
                raise ValueError(f"{op}: {name} = {size} must be {least} or more")
        return {**{name: d.default for name, d in known.items()}, **sizes}


def require(holds: bool, text: str) -> None:
    """Raises ValueError for sizes that do not go together."""
    if not holds:
        raise ValueError(text)


def grown(name: str, over: str | None = None) -> Controls:
    """A control that grows one input by half; None where input `over` (or itself) is empty."""

    def control(case: Case) -> Control | None:
        return scaled(case.inputs, name) if case.inputs[over or name].size else None

    return control


def bias_left_out(case: Case) -> Control | None:
    """The bias left out, where there is one; else `x` grown."""
    if case.inputs["x"].size == 0:
        return None
    return grown("x")(case) if case.inputs["bias"] is None else without("bias")


def negated(name: str, least: int = 1) -> Controls:
    """For what is indifferent to growth: one input's sign; None for rows under `least` elements."""

    def control(case: Case) -> Control | None:
        x = case.inputs[name]
        if x.size == 0 or x.shape[-1] < least:
            return None
        return Control(f"{name} negated", {name: -x})

    return control


ROWS = (0, 1, 2, 3, *(n + d for n in (8, 16, 32, 64, 128, 256, 512, 1024) for d in (-1, 0, 1)))
"""Tokens or rows: a kernel that is wrong at a tile's border, or from 1,024 rows on, is seen."""
WIDTHS = (1, 2, 3, *(n + d for n in (8, 16, 32, 64, 128, 256) for d in (-1, 0, 1)))
WIDTHS = (*WIDTHS, 96, 576, 1023, 1024, 1025)
"""Row lengths: odd ones, both sides of vector widths, multiples of a quantized block."""
VOCABULARY = (1, 2, 33, 257, 1000, 32000)
FLAG = (0, 1)
"""An option that is off or on."""


class Blank(Draw):
    """Zeros in place of random numbers: what a call looks like, at no cost whatever its size."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))

    def normal(self, *shape: int, mean: float = 0.0, scale: float = 1.0) -> Array:
        """Float32 zeros."""
        return np.zeros(shape, np.float32)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Array:
        """Float32 zeros."""
        return np.zeros(shape, np.float32)

    def integers(self, *shape: int, low: int = 0, high: int) -> Array:
        """Int32 zeros."""
        return np.zeros(shape, np.int32)

    def distinct(self, count: int, *, high: int) -> Array:
        """Int32 zeros."""
        return np.zeros(count, np.int32)
