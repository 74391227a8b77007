"""Calls one operator of an opened cpu chip with numpy arrays in and out."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from anychip.chips.cpu.build_isa import instruction_sets, runnable_sets
from anychip.chips.cpu.registration import CpuChip
from anychip.contract.cache import CacheView, spec_over
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import read_options
from anychip.contract.signature import REQUIRED, ArgKind, infer_outputs
from anychip.contract.tensor import IndexPair, Tensor, contiguous_strides
from anychip.contract.weights import HostWeight, WeightUse

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {
    np.dtype(np.float32): DType.FLOAT32,
    np.dtype(np.float16): DType.FLOAT16,
    BF16: DType.BFLOAT16,
    np.dtype(np.int32): DType.INT32,
    np.dtype(np.bool_): DType.BOOL,
}
NUMPY = {dtype: array for array, dtype in DTYPES.items()}
LINEAR = frozenset({WeightUse.LINEAR})
LEVELS = instruction_sets() if "amx" in instruction_sets() else runnable_sets()
"""Instruction sets that the operators are tried at; tiles are emulated where there are none."""


class CpuCalls:
    def __init__(self, options):
        values = read_options(CpuChip, {k: str(v) for k, v in options.items()})
        self.chip = CpuChip.open(0, values)
        self.made = []  # buffers of the call that is being put together

    def put(self, array, row_gap=0):
        """A tensor with the array's values; row_gap: elements between its rows."""
        array = np.asarray(array)
        inner = int(np.prod(array.shape[1:]))
        wide = np.zeros((*array.shape[:1], inner + row_gap), array.dtype)
        wide[..., :inner] = array.reshape(wide.shape[0], inner)
        buffer = self._allocate(wide.nbytes)
        dtype = DTYPES[array.dtype]
        whole = Tensor(wide.shape, dtype, buffer=buffer)
        if wide.size:
            self.chip.memory.copy_in(whole, memoryview(wide.view(np.uint8)).cast("B"))
        steps = (inner + row_gap, *contiguous_strides(array.shape)[1:])[: array.ndim]
        return Tensor(array.shape, dtype, steps, buffer=buffer)

    def get(self, tensor):
        out = np.empty(tensor.shape, NUMPY[tensor.dtype])
        if out.size:
            self.chip.memory.copy_out(tensor, memoryview(out.view(np.uint8)).cast("B"))
        return out

    def index(self, values):
        array = np.ascontiguousarray(values, np.int32)
        return IndexPair(memoryview(array), self.put(array))

    def weight(self, name, shape, data, uses=LINEAR):
        part = HostWeight(name, shape, memoryview(np.ascontiguousarray(data).view(np.uint8)))
        return self.chip.weights.prepare((part,), uses)

    def cache(self, k, v):
        return CacheView(spec_over(k.shape, DTYPES[k.dtype]), self.put(k), self.put(v))

    def call_of(self, op, inputs, attrs):
        """(implementation, call): the first native one that covers the call, and its memory."""
        signature = CATALOGUE[op]
        kinds = {a.name: a.kind for a in signature.inputs}
        made = {n: self._argument(kinds[n], x) for n, x in inputs.items() if x is not None}
        attrs = {a.name: a.default for a in signature.attrs if a.default is not REQUIRED} | attrs
        specs = {n: x.spec for n, x in made.items()}
        inferred = infer_outputs(signature, specs, attrs)
        outputs = {
            arg.name: Tensor(s.shape, s.dtype, buffer=self._poisoned(s.nbytes))
            for arg, s in zip(signature.outputs, inferred, strict=True)
        }
        spec = CallSpec(op, specs, {n: t.spec for n, t in outputs.items()}, attrs)
        offers = self.chip.operators.of(op)
        impl = next(i for i in offers if i.declines(spec) is None)
        nbytes = impl.workspace(spec)
        scratch = Tensor((nbytes,), DType.UINT8, buffer=self._poisoned(nbytes)) if nbytes else None
        self.last_id = impl.id
        return impl, Call(spec, made, outputs, scratch)

    def prepared(self, op, inputs, attrs):
        """(launch, outputs)."""
        impl, call = self.call_of(op, inputs, attrs)
        return impl.prepare(call), call.outputs

    def call(self, op, attrs=None, **inputs):
        """Outputs as arrays; one alone where the operator has one."""
        launch, outputs = self.prepared(op, inputs, attrs or {})
        launch()
        arrays = [self.get(t) for t in outputs.values()]
        while self.made:
            self.chip.memory.free(self.made.pop())
        return arrays[0] if len(arrays) == 1 else arrays

    def _argument(self, kind, x):
        if kind is ArgKind.INDEX and not isinstance(x, IndexPair):
            return self.index(x)
        return self.put(x) if isinstance(x, np.ndarray) else x

    def _allocate(self, nbytes):
        self.made.append(self.chip.memory.allocate(nbytes))
        return self.made[-1]

    def _poisoned(self, nbytes):
        buffer = self._allocate(nbytes)
        if nbytes:
            self.chip.memory.fill(Tensor((nbytes,), DType.UINT8, buffer=buffer), 0xFF)
        return buffer


def relative(got, wanted):
    """Relative L2 distance in float64."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    return np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), 1e-30)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def normal(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)
