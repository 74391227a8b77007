"""A call on a chip, made from host arrays: for conformance, and for calls that were saved.

Every tensor that a call may write lies between guard bands, and is copied out with its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anychip.contract.cache import HND, KNOWN_LAYOUTS, CacheView, latent_view, spec_over
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, CallSpec, Implementation, Launch, Value
from anychip.contract.registration import Chip
from anychip.contract.signature import Arg, ArgKind, infer_outputs
from anychip.contract.tensor import Buffer, IndexPair, Tensor, TensorSpec
from anychip.contract.weights import HostWeight, Weight, WeightUse
from anychip.hostops import NUMPY_DTYPES, dtype_of
from anychip.ops.oracle import CacheArrays, filled, latent_arrays
from anychip.ops.oracle.arrays import Array
from anychip.ops.staged import window

GUARD = 256
"""Bytes of a guard band before and behind a tensor: a multiple of every chip's alignment."""
GUARD_BYTE = 0xA5
POISON = 0xFF
"""A byte that makes NaN of every float type and -1 of every integer."""

USES = {
    "embedding": WeightUse.EMBEDDING,
    "lm_head": WeightUse.LM_HEAD,
    "grouped_linear": WeightUse.EXPERTS,
    "expert_mlp": WeightUse.EXPERTS,
}
"""What an operator does with a weight; all others: linear."""

HostWeights = Mapping[str, tuple[HostWeight, ...]]
"""Weight argument -> its parts as a checkpoint holds them, where a dense array will not do."""


class OpaqueCache(ValueError):
    """The chip's cache layout is its own: its contents cannot be written or read as arrays."""


@dataclass(frozen=True)
class _Guarded:
    """A tensor of ours and what surrounds it. extent: bytes between the bands."""

    name: str
    buffer: Buffer
    extent: int

    def bands(self) -> Iterator[Tensor]:
        """The bytes before and behind."""
        for offset in (0, GUARD + self.extent):
            size = self.buffer.nbytes - offset if offset else GUARD
            yield Tensor((size,), DType.UINT8, buffer=self.buffer, offset=offset)


class Placed:
    """A call with memory of its own. Close it, or use it as a context manager."""

    def __init__(
        self, chip: Chip, op: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> None:
        self._chip, self._op = chip, op
        self._given, self._attrs = inputs, filled(op, attrs)
        self._guarded: list[_Guarded] = []
        self._weights: list[Weight] = []
        self.call: Call

    def __enter__(self) -> Placed:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def prepare(self, implementation: Implementation) -> Launch:
        """Give it the workspace that it declares, between guard bands. Raises ChipError."""
        nbytes = implementation.workspace(self.call.spec)
        workspace = self._allocate("workspace", nbytes) if nbytes else None
        return implementation.prepare(replace(self.call, workspace=workspace))

    def poison(self, byte: int = POISON) -> None:
        """Fill every output."""
        for tensor in self.call.outputs.values():
            _set(self._chip, tensor, byte)

    def outcome(self) -> dict[str, Any]:
        """Outputs and written inputs by name, copied out: arrays, CacheArrays for a cache.

        Raises OpaqueCache, ChipError.
        """
        found: dict[str, Any] = {n: self.read(t) for n, t in self.call.outputs.items()}
        for name in CATALOGUE[self._op].writes:
            found[name] = self._written(self.call.inputs[name])
        return found

    def _written(self, value: Value | None) -> Array | CacheArrays:
        if isinstance(value, CacheView):
            if value.spec.group.layout not in KNOWN_LAYOUTS:
                raise OpaqueCache(f"a cache in layout {value.spec.group.layout} cannot be read")
            latent = value.spec.group.latent
            if latent:
                return latent_arrays(self.read(value.k), latent)
            return CacheArrays(self.read(value.k), self.read(value.v))
        assert isinstance(value, Tensor)
        return self.read(value)

    def read(self, tensor: Tensor) -> Array:
        """A tensor's elements, whatever its strides."""
        raw = np.zeros(tensor.extent_bytes, np.uint8)
        if raw.size:
            self._chip.memory.copy_out(window(tensor), raw.data)
        return _elements(raw, tensor)

    def damaged(self) -> str | None:
        """The argument beside which bytes were written; None where all bands are whole."""
        for guarded in self._guarded:
            for band in guarded.bands():
                seen = self.read(band)
                if (seen != GUARD_BYTE).any():
                    return guarded.name
        return None

    def close(self) -> None:
        """Give everything back."""
        for weight in self._weights:
            self._chip.weights.release(weight)
        for guarded in self._guarded:
            self._chip.memory.free(guarded.buffer)
        self._weights.clear()
        self._guarded.clear()

    def upload(self, parts: HostWeights) -> None:
        """Put everything on the chip; once, by `place`."""
        signature = CATALOGUE[self._op]
        values = {a.name: self._value(a, parts) for a in signature.inputs}
        specs = {name: None if v is None else v.spec for name, v in values.items()}
        inferred = infer_outputs(signature, specs, self._attrs)
        outputs = {
            a.name: self._tensor(a.name, spec)
            for a, spec in zip(signature.outputs, inferred, strict=True)
        }
        spec = CallSpec(self._op, specs, {n: t.spec for n, t in outputs.items()}, self._attrs)
        self.call = Call(spec, values, outputs)

    def _value(self, arg: Arg, parts: HostWeights) -> Value | None:
        array = self._given.get(arg.name)
        if arg.kind is ArgKind.WEIGHT and array is not None and arg.name not in parts:
            return self._weight((_host_weight(array),))
        if arg.name in parts:
            return self._weight(parts[arg.name])
        return None if array is None else self._operand(arg, array)

    def _operand(self, arg: Arg, array: Any) -> Value:
        if arg.kind is ArgKind.CACHE:
            return self._cache(array)
        tensor = self._upload(arg.name, array)
        if arg.kind is ArgKind.INDEX:
            return IndexPair(np.ascontiguousarray(array).data, tensor)
        return tensor

    def _weight(self, parts: tuple[HostWeight, ...]) -> Weight:
        use = USES.get(self._op, WeightUse.LINEAR)
        weight = self._chip.weights.prepare(parts, frozenset({use}))
        self._weights.append(weight)
        return weight

    def _cache(self, arrays: CacheArrays) -> CacheView:
        layout = self._chip.capabilities().cache_layout
        spec = spec_over(arrays.k.shape, dtype_of(arrays.k), layout, arrays.latent)
        if layout not in KNOWN_LAYOUTS:
            raise OpaqueCache(f"a cache in layout {layout} cannot be written as arrays")
        if arrays.latent:
            return latent_view(spec, self._upload("cache", laid_out(arrays.k, layout)))
        k, v = (laid_out(half, layout) for half in (arrays.k, arrays.v))
        return CacheView(spec, self._upload("cache", k), self._upload("cache", v))

    def _upload(self, name: str, array: Array) -> Tensor:
        """The array on the chip, strides and gaps kept."""
        steps = tuple(s // array.itemsize for s in array.strides)
        tensor = self._tensor(name, TensorSpec(array.shape, dtype_of(array), steps))
        if array.size:
            flat = np.lib.stride_tricks.as_strided(
                array, (tensor.extent_bytes // array.itemsize,), (array.itemsize,)
            )
            self._chip.memory.copy_in(window(tensor), host_bytes(flat))
        return tensor

    def _tensor(self, name: str, spec: TensorSpec) -> Tensor:
        extent = _extent(spec)
        whole = self._allocate(name, extent)
        return Tensor(spec.shape, spec.dtype, spec.strides, buffer=whole.buffer, offset=GUARD)

    def _allocate(self, name: str, nbytes: int) -> Tensor:
        """Bytes between guard bands."""
        behind = GUARD + -nbytes % GUARD
        guarded = _Guarded(name, self._chip.memory.allocate(GUARD + nbytes + behind), nbytes)
        self._guarded.append(guarded)
        for band in guarded.bands():
            _set(self._chip, band, GUARD_BYTE)
        return Tensor((nbytes,), DType.UINT8, buffer=guarded.buffer, offset=GUARD)


def place(
    chip: Chip,
    op: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    parts: HostWeights | None = None,
) -> Placed:
    """A call of `op` on the chip.

    inputs: arrays by argument as in `Case.inputs`; their strides are kept. parts: weights in a
    checkpoint's format, in place of dense arrays. On failure nothing stays allocated.
    Raises ChipError, OpaqueCache, SignatureError.
    """
    placed = Placed(chip, op, inputs, attrs)
    try:
        placed.upload(parts or {})
    except BaseException:
        placed.close()
        raise
    return placed


def host_bytes(array: Array) -> memoryview:
    """An array's elements as bytes, row-major."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _host_weight(array: Array) -> HostWeight:
    return HostWeight(dtype_of(array).value, array.shape, host_bytes(array))


def _extent(spec: TensorSpec) -> int:
    if spec.size == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (last + 1) * spec.dtype.itemsize


def laid_out(pages: Array, layout: str) -> Array:
    """[pages, page size, KV heads, head dim] over memory in one of KNOWN_LAYOUTS."""
    if layout == HND:
        turned: Array = np.ascontiguousarray(pages.swapaxes(1, 2)).swapaxes(1, 2)
        return turned
    return np.ascontiguousarray(pages)


def _elements(raw: Array, tensor: Tensor) -> Array:
    dtype = NUMPY_DTYPES[tensor.dtype]
    strides = [s * dtype.itemsize for s in tensor.strides]
    view = np.lib.stride_tricks.as_strided(raw.view(dtype), tensor.shape, strides)
    return np.array(view)


def _set(chip: Chip, tensor: Tensor, byte: int) -> None:
    """Every byte of a tensor, gaps included; by a copy, because `fill` is optional."""
    nbytes = tensor.extent_bytes
    if nbytes:
        chip.memory.copy_in(window(tensor), np.full(nbytes, byte, np.uint8).data)
