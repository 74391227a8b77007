"""Calls on an opened chip from host arrays: upload, prepare, launch, copy out."""

from __future__ import annotations

import numpy as np

from anychip.chips.fake.registration import FakeChip
from anychip.contract.cache import CacheView, latent_view, spec_over
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import read_options
from anychip.contract.signature import ArgKind, infer_outputs
from anychip.contract.tensor import IndexPair, Tensor
from anychip.contract.weights import HostWeight, WeightUse
from anychip.hostops import NUMPY_DTYPES, dtype_of
from anychip.ops.oracle import CacheArrays, filled, latent_arrays


def opened(**options) -> FakeChip:
    given = {"memory": "16M", **{name: str(value) for name, value in options.items()}}
    return FakeChip.open(0, read_options(FakeChip, given))


def host_bytes(array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def upload(chip, array) -> Tensor:
    """The array on the chip, strides kept."""
    strides = tuple(s // array.itemsize for s in array.strides)
    extent = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True)) + 1
    extent = extent if array.size else 0
    flat = np.lib.stride_tricks.as_strided(array, (extent,), (array.itemsize,))
    whole = Tensor((extent,), dtype_of(array), buffer=chip.memory.allocate(flat.nbytes))
    chip.memory.copy_in(whole, host_bytes(flat))
    return whole.view(array.shape, strides)


def download(chip, tensor):
    result = np.zeros(tensor.shape, NUMPY_DTYPES[tensor.dtype])
    flat = result.reshape(-1).view(np.uint8)
    chip.memory.copy_out(tensor, flat.data)
    return result


def value_of(chip, arg, array):
    if array is None:
        return None
    if arg.kind is ArgKind.WEIGHT:
        host = HostWeight(dtype_of(array).value, array.shape, host_bytes(array))
        return chip.weights.prepare((host,), frozenset({WeightUse.LINEAR}))
    if arg.kind is ArgKind.CACHE:
        spec = spec_over(array.k.shape, dtype_of(array.k), latent=array.latent)
        k = upload(chip, array.k)
        return latent_view(spec, k) if array.latent else CacheView(spec, k, upload(chip, array.v))
    tensor = upload(chip, array)
    if arg.kind is ArgKind.INDEX:
        return IndexPair(memoryview(np.ascontiguousarray(array)), tensor)
    return tensor


def spec_of(value):
    return None if value is None else value.spec


def prepared(chip, op, arrays, attrs):
    """(implementation, call) with everything on the chip."""
    signature = CATALOGUE[op]
    inputs = {a.name: value_of(chip, a, arrays.get(a.name)) for a in signature.inputs}
    specs = {name: spec_of(value) for name, value in inputs.items()}
    attrs = filled(op, attrs)
    inferred = infer_outputs(signature, specs, attrs)
    names = [a.name for a in signature.outputs]
    outputs = {
        name: Tensor(s.shape, s.dtype, buffer=chip.memory.allocate(s.nbytes))
        for name, s in zip(names, inferred, strict=True)
    }
    spec = CallSpec(op, specs, {n: t.spec for n, t in outputs.items()}, attrs)
    return chip.operators.of(op)[0], Call(spec, inputs, outputs)


def results(chip, call):
    """Outputs and what the operator writes, copied out."""
    found = {name: download(chip, tensor) for name, tensor in call.outputs.items()}
    for name in CATALOGUE[call.spec.op].writes:
        value = call.inputs[name]
        if isinstance(value, CacheView):
            halves = [download(chip, half) for half in value.halves]
            latent = value.spec.group.latent
            found[name] = latent_arrays(*halves, latent) if latent else CacheArrays(*halves)
        else:
            found[name] = download(chip, value)
    return found


def run(chip, op, arrays, attrs=None):
    impl, call = prepared(chip, op, arrays, attrs or {})
    impl.prepare(call)()
    return results(chip, call)
