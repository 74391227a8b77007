"""What would make an operator give just this wrong result: known mistakes, tried on the oracle.

A diverging result that lies next to what the oracle gives for a mistake names that mistake: a
weight read in another dtype, max taken for scale, a product in int16, an option that is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.signature import ArgKind
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.check import Outcome, distance, outcome
from anychip.ops.oracle.arrays import Array, Inputs, is_float

NEARER = 0.1
"""A mistake explains a result that lies by this factor nearer to it than to what is right, and
within this relative L2 of it."""

LEVELS = {"int8": 127, "int16": 32767}
"""Integer products that a vendor may take for a float one: largest value of the type."""

_OPTIONS = {
    "softcap": (0.0, "the softcap is ignored"),
    "window": (0, "the window is ignored"),
    "causal": (False, "the causal mask is ignored"),
}
_FACTORS = {
    "max is taken for scale": 127.0,
    "scale is taken for max": 1 / 127.0,
}
_HALVES = (DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class Suspect:
    """A mistake: its text, and the inputs and attributes of the call that it amounts to."""

    text: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any]


def explained(op: str, inputs: Inputs, attrs: Mapping[str, Any], found: Outcome) -> str:
    """The mistake that explains a result; empty where none does. Arguments as `check.compare`."""
    with np.errstate(all="ignore"):
        expected = outcome(op, inputs, attrs)
        right = min(_apart(expected, found), 1.0)  # a NaN of the chip's is infinitely far off
        for suspect in suspects(op, inputs, attrs):
            wrong = outcome(op, {**inputs, **suspect.inputs}, {**attrs, **suspect.attrs})
            if _apart(wrong, found) < NEARER * right:
                return suspect.text
        left = _apart({n: inputs[n] for n in CATALOGUE[op].writes}, found)
    if left == 0.0 < right:
        return "nothing was written: what it should have changed is as it was"
    return _constant(found) if not _constant(expected) else ""


def _apart(expected: Outcome, found: Outcome) -> float:
    """Infinitely far where nothing is expected."""
    apart = (distance(value, found[name]) for name, value in expected.items())
    return max(apart, default=float("inf"))


def _constant(found: Outcome) -> str:
    """Results that depend on nothing: never written, or NaN throughout."""
    arrays = [v for v in found.values() if isinstance(v, np.ndarray) and v.size > 1 and is_float(v)]
    if arrays and all(np.isnan(a.astype(np.float64)).all() for a in arrays):
        return "every number is NaN: the output was never written, or an input was read as NaN"
    if arrays and all((a == a.reshape(-1)[0]).all() for a in arrays):
        values = ", ".join(f"{float(a.reshape(-1)[0]):.3g}" for a in arrays)
        return f"every number is the same ({values}): the output depends on nothing"
    return ""


def suspects(op: str, inputs: Inputs, attrs: Mapping[str, Any]) -> Iterator[Suspect]:
    """Mistakes that this call could suffer, the likeliest first."""
    for arg in CATALOGUE[op].inputs:
        value = inputs.get(arg.name)
        if arg.kind is ArgKind.WEIGHT and isinstance(value, np.ndarray):
            yield from _weight(arg.name, value)
    yield from _integer_products(op, inputs)
    yield from _options(attrs, inputs)


def _weight(name: str, values: Array) -> Iterator[Suspect]:
    for real in _HALVES:
        for read in _HALVES:
            if real is not read and _held(values, real):
                bits = values.astype(NUMPY_DTYPES[real]).view(np.uint16)
                other = bits.view(NUMPY_DTYPES[read])
                text = f"'{name}' is {real}, its bytes are read as {read}"
                yield Suspect(text, {name: other}, {})
    for text, factor in _FACTORS.items():
        what = f"'{name}' is {factor:.3g} times what it should be: {text}"
        yield Suspect(what, {name: values * factor}, {})


def _held(values: Array, dtype: DType) -> bool:
    """Whether a 16-bit type holds these values exactly, so that they may have lain there in it."""
    wide = values.astype(np.float32)
    return bool((wide.astype(NUMPY_DTYPES[dtype]).astype(np.float32) == wide).all())


_PRODUCTS = {"linear": ("x", "weight"), "lm_head": ("x", "weight"), "matmul": ("a", "b")}


def _integer_products(op: str, inputs: Inputs) -> Iterator[Suspect]:
    names = _PRODUCTS.get(op, ())
    if not names or not all(isinstance(inputs.get(n), np.ndarray) for n in names):
        return
    for kind, levels in LEVELS.items():
        changed = {name: _quantized(inputs[name], levels) for name in names}
        yield Suspect(f"the product is computed in {kind}, not in a float type", changed, {})


def _quantized(values: Array, levels: int) -> Array:
    wide = values.astype(np.float32)
    scale = float(np.abs(wide).max(initial=0.0)) / levels or 1.0
    return np.asarray(np.round(wide / scale) * scale, np.float32)


def _options(attrs: Mapping[str, Any], inputs: Inputs) -> Iterator[Suspect]:
    for name, (off, text) in _OPTIONS.items():
        if attrs.get(name):
            yield Suspect(text, {}, {name: off})
    if attrs.get("window"):
        for off in (-1, 1):
            text = f"the window is off by one: {attrs['window'] + off} positions"
            yield Suspect(text, {}, {"window": attrs["window"] + off})
    q = inputs.get("q")
    if "scale" in attrs and isinstance(q, np.ndarray):
        root = float(q.shape[-1]) ** -0.5
        for text, factor in (("is applied twice", root), ("is left out", 1 / root)):
            changed = {"scale": attrs["scale"] * factor}
            yield Suspect(f"1/sqrt(head dim) {text}", {}, changed)
        if attrs["scale"] != root:
            yield Suspect("scale is replaced by 1/sqrt(head dim)", {}, {"scale": root})
