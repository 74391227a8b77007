"""Runs a case through tracing and binding, on numpy memory and hostops kernels."""

from __future__ import annotations

import numpy as np

from anychip import hostops
from anychip.contract.cache import CacheGroup, CacheSpec, CacheView, latent_view
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import OperatorTable
from anychip.contract.signature import ArgKind, Tier
from anychip.contract.tensor import Buffer, IndexPair, Tensor, TensorSpec
from anychip.contract.weights import Weight, WeightSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.arena import plan_arena
from anychip.ops.bind import Operands, bind
from anychip.ops.decide import Decider
from anychip.ops.oracle import CacheArrays
from anychip.ops.trace import Ops
from anychip.ops.value import CacheRef, Storage, Value, WeightRef

NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
PRIMITIVES = tuple(n for n, s in CATALOGUE.items() if s.tier is Tier.PRIMITIVE)


def table(ops=None):
    """hostops over numpy memory: a buffer's handle is a byte array."""

    def array_of(tensor):
        return hostops.array_view(tensor.buffer.handle, tensor)

    return OperatorTable(hostops.table(array_of, ops=ops))


def tensor_of(array):
    """A tensor with the array's strides over a copy of what they span."""
    steps = tuple(s // array.itemsize for s in array.strides) if array.size else ()
    spec = TensorSpec(array.shape, NAMES[array.dtype], steps)
    extent = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) + 1
    base = np.zeros(extent if array.size else 0, array.dtype)
    strides = [s * array.itemsize for s in spec.strides]
    np.lib.stride_tricks.as_strided(base, array.shape, strides)[...] = array
    raw = base.view(np.uint8)
    return Tensor(spec.shape, spec.dtype, spec.strides, buffer=Buffer(raw, raw.nbytes))


def array_of(tensor):
    return np.array(hostops.array_view(tensor.buffer.handle, tensor))


class Given:
    """Symbols of a case's arguments, and the memory behind them."""

    def __init__(self, case):
        self.operands = Operands(Buffer(None, 0), weights={})
        signature = CATALOGUE[case.op]
        self.refs = {a.name: self._ref(a, case.inputs.get(a.name)) for a in signature.inputs}

    def _ref(self, arg, array):
        if array is None:
            return None
        if arg.kind is ArgKind.CACHE:
            return self._cache(array)
        tensor = tensor_of(array)
        if arg.kind is ArgKind.WEIGHT:
            spec = WeightSpec(tensor.dtype.value, tensor.shape, tensor.nbytes, True)
            self.operands.weights[arg.name] = Weight(spec, (tensor,), tensor)
            return WeightRef(arg.name, spec)
        if arg.kind is ArgKind.INDEX:
            host = np.ascontiguousarray(array)
            self.operands.indices[arg.name] = IndexPair(memoryview(host), tensor)
            return Value(Storage("index", arg.name, tensor.nbytes), tensor.spec)
        self.operands.inputs[arg.name] = tensor
        return Value(Storage("input", arg.name, tensor.nbytes), tensor.spec)

    def _cache(self, arrays):
        pages, size, heads, dim = arrays.k.shape
        group = CacheGroup(1, heads, dim, NAMES[arrays.k.dtype], size, latent=arrays.latent)
        spec, k = CacheSpec(group, pages), tensor_of(arrays.k)
        view = latent_view(spec, k) if group.latent else CacheView(spec, k, tensor_of(arrays.v))
        self.operands.caches = (view,)
        return CacheRef(0, spec)


def run_traced(case, operators):
    """Outputs of a case by name, written inputs included; ids of the implementations used."""
    given = Given(case)
    ops = Ops(Decider(operators))
    found = getattr(ops, case.op)(**given.refs, **case.attrs)
    values = found if isinstance(found, tuple) else () if found is None else (found,)
    names = [a.name for a in CATALOGUE[case.op].outputs]
    ops.program.results.update(zip(names, values, strict=True))
    size = plan_arena(ops.program).nbytes
    given.operands.arena = Buffer(np.full(size, 0xFF, np.uint8), size)
    bound = bind(ops.program, given.operands, memory=None)
    for launch in bound.launches:
        launch()
    outputs = {n: array_of(t) for n, t in bound.results.items()}
    for name in case.expected().written:
        outputs[name] = written(given.operands, name)
    return outputs, [c.implementation.id for c in bound.calls]


def written(operands, name):
    if name != "cache":
        return array_of(operands.inputs[name])
    view = operands.caches[0]
    return CacheArrays(array_of(view.k), array_of(view.v))
