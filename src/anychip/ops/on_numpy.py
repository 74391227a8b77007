"""Recipes computed at once on numpy arrays, primitive by primitive: no chip, no program.

Results are rounded to the inferred dtype, views keep their strides, writes reach what they view:
what a chip that brings primitives alone would compute, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.contract.cache import CacheSpec, spec_over
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.signature import Arg, ArgKind, Layout, Signature, Tier, infer_outputs
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import WeightSpec
from anychip.hostops import NUMPY_DTYPES, dtype_of
from anychip.hostops.primitives import KERNELS
from anychip.ops.cases.case import Case
from anychip.ops.compositions import COMPOSITIONS
from anychip.ops.oracle import CacheArrays, evaluate, filled
from anychip.ops.oracle.arrays import Array

Primitive = Callable[[str, Mapping[str, Any], Mapping[str, Array], Mapping[str, Any]], None]
"""(operator, inputs, outputs, attributes): fills the outputs and the inputs that it writes."""


@dataclass(frozen=True, eq=False)
class ArrayValue:
    """A value of a recipe that is there already."""

    array: Array

    @property
    def spec(self) -> TensorSpec:
        """Shape, dtype and strides."""
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        return TensorSpec(self.array.shape, self.dtype, strides)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.array.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return dtype_of(self.array)

    @property
    def is_contiguous(self) -> bool:
        """Whether it is row-major without gaps."""
        return self.spec.is_contiguous

    def reshape(self, *sizes: int) -> ArrayValue:
        """The same elements in another shape. ValueError for a strided view."""
        if not self.is_contiguous:
            raise ValueError(f"reshape: a strided view of shape {self.shape} to {sizes}")
        return ArrayValue(self.array.reshape(sizes))

    def transpose(self, *axes: int) -> ArrayValue:
        """Dimensions in another order."""
        return ArrayValue(self.array.transpose(axes))

    def broadcast_to(self, *sizes: int) -> ArrayValue:
        """Dimensions of size 1 stretched."""
        return ArrayValue(np.broadcast_to(self.array, sizes))

    def narrow(self, axis: int, start: int, length: int) -> ArrayValue:
        """`length` elements of one dimension from `start`; ValueError outside of it."""
        if not 0 <= start <= start + length <= self.shape[axis]:
            raise ValueError(f"narrow: {start} + {length} in a dimension of {self.shape[axis]}")
        return ArrayValue(self.array[(slice(None),) * axis + (slice(start, start + length),)])


@dataclass(frozen=True, eq=False)
class ArrayWeight:
    """A dense weight."""

    dense: ArrayValue

    @property
    def spec(self) -> WeightSpec:
        """What a chip that packs nothing would say."""
        array = self.dense.array
        return WeightSpec(self.dense.dtype.value, array.shape, array.nbytes, True)


@dataclass(frozen=True, eq=False)
class ArrayCache:
    """One layer's cache."""

    k: ArrayValue
    v: ArrayValue
    latent: int = 0

    @property
    def page_size(self) -> int:
        """Slots of a page."""
        return self.k.shape[1]

    @property
    def head_dim(self) -> int:
        """Elements of a vector, without the scale that may lie behind it."""
        return self.spec.group.head_dim

    @property
    def spec(self) -> CacheSpec:
        """As a group of its own."""
        return spec_over(self.k.shape, self.k.dtype, latent=self.latent)


Given = ArrayValue | ArrayWeight | ArrayCache


def by_hostops(
    op: str, inputs: Mapping[str, Any], outputs: Mapping[str, Array], attrs: Mapping[str, Any]
) -> None:
    """A primitive as the host computes it: in float32 or wider, rounded when stored."""
    with np.errstate(all="ignore"):  # infinities and NaNs are results like others
        KERNELS[op](inputs, outputs, attrs)


class NumpyOps:
    """The operators as recipes call them. compute: what does the primitives."""

    def __init__(self, compute: Primitive = by_hostops) -> None:
        self._compute = compute

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CATALOGUE:
            raise AttributeError(f"no operator '{name}' in the catalogue")
        return lambda **given: self.call(CATALOGUE[name], given)

    def call(self, signature: Signature, given: Mapping[str, Any]) -> Any:
        """A value, a tuple of them, or None. Raises SignatureError, KeyError (unknown name)."""
        names = [a.name for a in signature.inputs]
        attrs = filled(signature.name, {n: v for n, v in given.items() if n not in names})
        unknown = set(attrs) - {a.name for a in signature.attrs}
        if unknown:
            raise KeyError(f"{signature.name} has no {sorted(unknown)}")
        inputs = {a.name: _laid_out(a, given.get(a.name)) for a in signature.inputs}
        cache = inputs.get("cache")
        if isinstance(cache, ArrayCache) and cache.spec.group.scaled and not _is_fused(signature):
            return _by_oracle(signature, inputs, attrs)
        if signature.tier is not Tier.PRIMITIVE:
            return COMPOSITIONS[signature.name](self, **inputs, **attrs)
        outputs = _outputs(signature, inputs, attrs)
        arrays = {n: v.array for n, v in inputs.items() if isinstance(v, ArrayValue)}
        self._compute(signature.name, arrays, outputs, attrs)
        found = tuple(ArrayValue(array) for array in outputs.values())
        return found[0] if len(found) == 1 else found or None


def _is_fused(signature: Signature) -> bool:
    return signature.tier is Tier.FUSED


def _by_oracle(
    signature: Signature, inputs: Mapping[str, Given | None], attrs: Mapping[str, Any]
) -> Any:
    """What has no recipe, since no primitive takes scales apart: as the oracle says, rounded once.
    The cache is written in place."""
    cache = inputs["cache"]
    assert isinstance(cache, ArrayCache)
    arrays = {n: None if v is None else _bare(v) for n, v in inputs.items()}
    result = evaluate(signature.name, arrays, attrs)
    for written in result.written.values():
        assert isinstance(written, CacheArrays)
        cache.k.array[...], cache.v.array[...] = written.k, written.v
    outputs = _outputs(signature, inputs, attrs)
    for array, found in zip(outputs.values(), result.outputs, strict=True):
        array[...] = found
    values = tuple(ArrayValue(array) for array in outputs.values())
    return values[0] if values else None


def _bare(value: Given) -> Array | CacheArrays:
    if isinstance(value, ArrayCache):
        return CacheArrays(value.k.array, value.v.array, value.latent)
    return value.dense.array if isinstance(value, ArrayWeight) else value.array


def _outputs(
    signature: Signature, inputs: Mapping[str, Given | None], attrs: Mapping[str, Any]
) -> dict[str, Array]:
    specs = {n: None if v is None else v.spec for n, v in inputs.items()}
    inferred = infer_outputs(signature, specs, attrs)
    return {
        a.name: np.empty(spec.shape, NUMPY_DTYPES[spec.dtype])
        for a, spec in zip(signature.outputs, inferred, strict=True)
    }


def _laid_out(arg: Arg, value: Given | None) -> Given | None:
    """The argument itself, or a contiguous copy where its strides are not allowed."""
    if not isinstance(value, ArrayValue) or value.is_contiguous or arg.layout is Layout.STRIDED:
        return value
    if arg.layout is Layout.ROWS and value.spec.has_contiguous_rows:
        return value
    return ArrayValue(np.ascontiguousarray(value.array))


def wrapped(arg: Arg, array: Any) -> Given | None:
    """A case's array as what a recipe is given for this argument; nothing is copied."""
    if array is None:
        return None
    if arg.kind is ArgKind.WEIGHT:
        return ArrayWeight(ArrayValue(array))
    if arg.kind is ArgKind.CACHE:
        return ArrayCache(ArrayValue(array.k), ArrayValue(array.v), array.latent)
    return ArrayValue(array)


def run_on_numpy(case: Case, ops: NumpyOps | None = None) -> dict[str, Array | CacheArrays]:
    """Outputs and written inputs of a case by name, computed by recipe down to primitives."""
    signature = CATALOGUE[case.op]
    inputs = {**case.inputs, **{n: _copied(case.inputs[n]) for n in signature.writes}}
    given = {a.name: wrapped(a, inputs.get(a.name)) for a in signature.inputs}
    found = (ops or NumpyOps()).call(signature, {**given, **case.attrs})
    values = found if isinstance(found, tuple) else () if found is None else (found,)
    names = (a.name for a in signature.outputs)
    outputs = {n: v.array for n, v in zip(names, values, strict=True)}
    return {**outputs, **{n: inputs[n] for n in signature.writes}}


def _copied(value: Array | CacheArrays) -> Array | CacheArrays:
    if isinstance(value, CacheArrays):
        return value.mapped(np.array)
    return np.array(value)
