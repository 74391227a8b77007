"""Deterministic contents and strided views of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.ops.cases.case import Control
from anychip.ops.oracle.arrays import Array


@dataclass(frozen=True, eq=False)
class Draw:
    """Random arrays that depend on the seed's text alone."""

    generator: np.random.Generator

    def normal(self, *shape: int, mean: float = 0.0, scale: float = 1.0) -> Array:
        """Float32 from a normal distribution."""
        return self.generator.normal(mean, scale, shape).astype(np.float32)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Array:
        """Float32 of low .. high."""
        return self.generator.uniform(low, high, shape).astype(np.float32)

    def integers(self, *shape: int, low: int = 0, high: int) -> Array:
        """Int32 of low .. high - 1."""
        return self.generator.integers(low, high, shape).astype(np.int32)

    def distinct(self, count: int, *, high: int) -> Array:
        """Int32, `count` different ones of 0 .. high - 1."""
        chosen: Array = self.generator.permutation(high)[:count].astype(np.int32)
        return chosen


def draw(seed: str) -> Draw:
    """The same numbers for the same text, on every machine."""
    return Draw(np.random.default_rng(zlib.crc32(seed.encode())))


def turned(array: Array) -> Array:
    """The same values with the strides of a transposed tensor."""
    view: Array = np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    return view


def apart(array: Array, gap: int = 3) -> Array:
    """The same values with a gap after each row (the first dimension)."""
    rows, width = array.shape[0], int(np.prod(array.shape[1:]))
    base = np.full((rows, width + gap), np.nan, dtype=array.dtype)
    base[:, :width] = array.reshape(rows, width)
    inner = np.cumprod((1, *array.shape[:0:-1]))[::-1][1:] * array.itemsize
    strides = (base.strides[0], *(int(s) for s in inner))
    return np.lib.stride_tricks.as_strided(base, array.shape, strides)


def scaled(inputs: Mapping[str, Any], name: str) -> Control:
    """A control: one input half again as large."""
    grown = (inputs[name] * 1.5).astype(inputs[name].dtype)
    return Control(f"{name} half again as large", {name: grown})


def without(name: str) -> Control:
    """A control: an optional input left out."""
    return Control(f"without {name}", {name: None})


def changed(name: str, value: Any) -> Control:
    """A control: another value of an attribute."""
    return Control(f"{name} = {value}", attrs={name: value})
