"""A double of the tracing API that computes at once: primitives by the oracle, the rest by recipe.

Results are rounded to the inferred dtype, views keep their strides, writes reach what they view.
"""

from __future__ import annotations

import numpy as np

from anychip.contract.cache import CacheGroup, CacheSpec
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.signature import ArgKind, Layout, Tier, infer_outputs
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import WeightSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.compositions import COMPOSITIONS
from anychip.ops.oracle import CacheArrays, evaluate, filled

NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


class Value:
    def __init__(self, array):
        self.array = array

    @property
    def spec(self):
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        return TensorSpec(self.array.shape, NAMES[self.array.dtype], strides)

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return NAMES[self.array.dtype]

    @property
    def is_contiguous(self):
        return self.spec.is_contiguous

    def reshape(self, *sizes):
        assert self.is_contiguous, "reshape of a strided view"
        return Value(self.array.reshape(sizes))

    def transpose(self, *axes):
        return Value(self.array.transpose(axes))

    def broadcast_to(self, *sizes):
        return Value(np.broadcast_to(self.array, sizes))

    def narrow(self, axis, start, length):
        assert 0 <= start <= start + length <= self.array.shape[axis]
        return Value(self.array[(slice(None),) * axis + (slice(start, start + length),)])


class Weight:
    def __init__(self, array):
        self.dense = Value(array)

    @property
    def spec(self):
        return WeightSpec(self.dense.dtype.value, self.dense.shape, self.dense.array.nbytes, True)


class Cache:
    def __init__(self, arrays):
        self.k, self.v = Value(arrays.k), Value(arrays.v)
        self.page_size = arrays.page_size

    @property
    def spec(self):
        pages, size, heads, dim = self.k.shape
        return CacheSpec(CacheGroup(1, heads, dim, self.k.dtype, size), pages)


class EagerOps:
    """recipes: operators that are expanded; by default all that are no primitive."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda **given: self._call(CATALOGUE[name], given)

    def _call(self, signature, given):
        names = [a.name for a in signature.inputs]
        attrs = filled(signature.name, {n: v for n, v in given.items() if n not in names})
        unknown = set(attrs) - {a.name for a in signature.attrs}
        assert not unknown, f"{signature.name} has no {unknown}"
        inputs = {a.name: self._laid_out(a, given.get(a.name)) for a in signature.inputs}
        specs = {n: None if v is None else v.spec for n, v in inputs.items()}
        outputs = infer_outputs(signature, specs, attrs)
        self.calls.append(signature.name)
        if signature.tier is not Tier.PRIMITIVE:
            return COMPOSITIONS[signature.name](self, **inputs, **attrs)
        return self._primitive(signature, {n: v.array for n, v in inputs.items()}, attrs, outputs)

    def _laid_out(self, arg, value):
        strided = isinstance(value, Value) and not value.is_contiguous
        if not strided or arg.layout is Layout.STRIDED:
            return value
        if arg.layout is Layout.ROWS and value.spec.has_contiguous_rows:
            return value
        assert arg.kind is ArgKind.TENSOR
        return Value(np.ascontiguousarray(value.array))

    def _primitive(self, signature, inputs, attrs, outputs):
        result = evaluate(signature.name, inputs, attrs)
        for name, array in result.written.items():
            inputs[name][...] = array
        found = []
        for array, spec in zip(result.outputs, outputs, strict=True):
            assert array.shape == spec.shape, f"{signature.name}: {array.shape}, not {spec.shape}"
            found.append(Value(np.ascontiguousarray(array.astype(NUMPY_DTYPES[spec.dtype]))))
        return found[0] if len(found) == 1 else tuple(found) or None


def run_recipe(case):
    """Outputs of a case's operator by its recipe, written inputs included; ops called."""
    ops, signature = EagerOps(), CATALOGUE[case.op]
    wrapped = {a.name: _wrapped(a, case.inputs.get(a.name)) for a in signature.inputs}
    found = getattr(ops, case.op)(**wrapped, **case.attrs)
    values = found if isinstance(found, tuple) else () if found is None else (found,)
    names = [a.name for a in signature.outputs]
    outputs = {n: v.array for n, v in zip(names, values, strict=True)}
    for name in case.expected().written:
        outputs[name] = CacheArrays(wrapped[name].k.array, wrapped[name].v.array)
    return outputs, ops.calls, values


def _wrapped(arg, array):
    if array is None:
        return None
    if arg.kind is ArgKind.WEIGHT:
        return Weight(array)
    if arg.kind is ArgKind.CACHE:
        return Cache(CacheArrays(array.k.copy(), array.v.copy()))
    return Value(array)


FLOATS = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
