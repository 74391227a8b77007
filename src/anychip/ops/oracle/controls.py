"""Negative controls for calls that come as they are: a change that a right comparison notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.ops.oracle.arrays import Array, Attrs, CacheArrays, Inputs, is_float
from anychip.ops.oracle.scaled import is_scaled, scales, with_scales

Changes = tuple[Inputs, Mapping[str, Any]]
"""Inputs and attributes that replace those of the call."""

_OFF: dict[str, Any] = {"softcap": 0.0, "window": 0, "eps": 0.0}
_SCALED_FIRST = ("weight", "norm", "table", "source", "cos_sin")
"""Inputs that a kernel forgets or mixes up more easily than its activations."""


def _grown(value: Array) -> Array:
    """Another value of the same dtype, clearly different wherever the value is not zero."""
    if value.dtype.kind == "b":
        return ~value
    if not is_float(value):
        more: Array = value + value.dtype.type(1)
        return more
    with np.errstate(over="ignore"):  # infinity is a clear difference too
        return (value.astype(np.float64) * 1.5).astype(value.dtype)


def _without_options(op: str, inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    for name in (a.name for a in CATALOGUE[op].inputs if a.optional):
        if inputs.get(name) is not None:
            yield {name: None}, {}
    for name, off in _OFF.items():
        if attrs.get(name):
            yield {}, {name: off}


def _other_scale(inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    if "scale" in attrs:
        yield {}, {"scale": attrs["scale"] * 1.5}


def _grown_inputs(inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    """One float input grown; integers, which may be indices, are left alone."""
    names = [n for n in _SCALED_FIRST if n in inputs] + [
        n for n in inputs if n not in _SCALED_FIRST
    ]
    for name in names:
        value = inputs[name]
        if isinstance(value, CacheArrays) and is_scaled(value.v):
            yield from (({name: other}, {}) for other in _other_scales(value))
        elif isinstance(value, CacheArrays):
            yield {name: _grown_values(value)}, {}
        elif value is not None and (is_float(value) or value.dtype.kind == "b"):
            yield {name: _grown(value)}, {}


def _grown_values(cache: CacheArrays) -> CacheArrays:
    """Of a latent cache the keys too: they are the same elements."""
    if cache.latent:
        return cache.mapped(_grown)
    return CacheArrays(cache.k, _grown(cache.v))


def _other_scales(cache: CacheArrays) -> Iterator[CacheArrays]:
    """Values with scales half as large again, and with those of the slot before."""
    own = scales(cache.v)
    for other in (own * np.float32(1.5), np.roll(own, 1, axis=1)):
        yield CacheArrays(cache.k, with_scales(cache.v, other))


def _negated(inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    """Choices are indifferent to growth, not to sign."""
    for name in ("x", "logits"):
        if inputs.get(name) is not None and is_float(inputs[name]):
            yield {name: (-inputs[name].astype(np.float64)).astype(inputs[name].dtype)}, {}


def _other_integers(inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    for name in ("x", "a", "table", "source"):
        value = inputs.get(name)
        if value is not None and value.dtype.kind in "iu":
            yield {name: _grown(value)}, {}
    if "index" in inputs:
        yield {"index": np.zeros_like(inputs["index"])}, {}


def _other_numbers(inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    if "value" in attrs:
        yield {}, {"value": attrs["value"] + 1}
    if "noise" in inputs:
        yield {"noise": 1 - inputs["noise"]}, {}


_KINDS: tuple[Callable[[Inputs, Attrs], Iterator[Changes]], ...] = (
    _other_scale,
    _grown_inputs,
    _negated,
    _other_integers,
    _other_numbers,
)


def controls(op: str, inputs: Inputs, attrs: Attrs) -> Iterator[Changes]:
    """Changes to try in turn: an option dropped, a wrong unit, an input grown or negated."""
    yield from _without_options(op, inputs, attrs)
    for kind in _KINDS:
        yield from kind(inputs, attrs)
