"""A chip's shim: C functions that make the vendor's calls, each given one struct of native/shim.h.

What a shim exports under which names stands there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anychip.contract.cache import CacheSpec, CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer
from anychip.contract.operators import Call, CallSpec, Value
from anychip.contract.signature import Spec, dtype_name
from anychip.contract.tensor import IndexPair, Tensor, TensorSpec, contiguous_strides
from anychip.contract.weights import Weight, WeightSpec
from anychip.sdkbase.errors import ErrorTable

_SHIMS_TAKE = tuple(dtype for dtype in DType if dtype is not DType.FLOAT8_E4M3)
CODES = {dtype.value: code for code, dtype in enumerate(_SHIMS_TAKE)}
"""Numbers of the dtypes in a call, in the contract's order; shims hold no scaled cache."""
MAX_RANK, MAX_OPERANDS, MAX_ATTRIBUTES = 6, 20, 8
OWN = {
    -9001: "its workspace is too small",
    -9002: "a dtype that it does not cover",
    -9003: "raised",
}
"""Statuses of a shim itself, as in shim.h; the others are the vendor's."""


class OperandStruct(ctypes.Structure):
    """A tensor, its strides in elements; rank -1 where an optional one is absent. host: the other
    half of an index pair."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("dtype", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    )


class CallStruct(ctypes.Structure):
    """Operands: inputs, then outputs, in the signature's order; a cache is two, keys and values.

    attributes: numbers of the signature in its order, 0 for what is no number. failed: the vendor
    call that a status came from.
    """

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("failed", ctypes.c_char_p),
        ("count", ctypes.c_int64),
        ("attributes", ctypes.c_double * MAX_ATTRIBUTES),
        ("operands", OperandStruct * MAX_OPERANDS),
    )


class Shim:
    """The compiled shim. Raises ChipError where it does not fit this file.

    space: status -> the library in the table of errors that gave it. address: a tensor's on the
    device.
    """

    def __init__(
        self,
        path: Path | str,
        prefix: str,
        errors: ErrorTable,
        space: Callable[[int], str],
        address: Callable[[Tensor], int],
    ) -> None:
        self._prefix, self._errors, self._space, self._address = prefix, errors, space, address
        self._context: int | None = None
        self._runtime: Callable[[], None] | None = None
        try:
            self._library = ctypes.CDLL(str(path))
            size = self._typed("struct_size", ctypes.c_int64)()
        except (OSError, AttributeError) as error:
            raise errors.unfit(f"{error}: build it anew") from error
        if size != ctypes.sizeof(CallStruct):
            text = f"the shim's call has {size} bytes, this chip's {ctypes.sizeof(CallStruct)}"
            raise errors.refused(ChipLayer.BUILD, f"{text}: build it anew")

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"{self._prefix}_{name}")

    def _typed(self, name: str, result: Any) -> Any:
        function = self._function(name)
        function.restype = result
        return function

    def has(self, name: str) -> bool:
        """Whether it was built with this row of the table."""
        return hasattr(self._library, f"{self._prefix}_{name}")

    def open(self, queue: int, runtime: Callable[[], None] | None = None) -> None:
        """Make the operators' context, on the vendor's queue. Raises ChipError.

        runtime: asks the runtime how it is, and raises what it says: where the operators' library
        fails for good, the reason may lie beneath it (a lost device).
        """
        self._runtime = runtime
        self._context = self._typed("open", ctypes.c_void_p)(ctypes.c_void_p(queue))
        if self._context is None:
            raise self._errors.unfit("the vendor's library made no context for the operators")

    def close(self) -> None:
        """Give the context back; a second time does nothing."""
        context, self._context = self._context, None
        if context is not None:
            self._function("close")(ctypes.c_void_p(context))

    def workspace(self, name: str, spec: CallSpec) -> int:
        """Bytes that a call needs."""
        call = struct_of(spec)
        self._check(name, self._function(name)(ctypes.byref(call)), call)
        return int(call.workspace_bytes)

    def prepared(self, name: str, call: Call) -> Callable[[], None]:
        """What queues the vendor's calls; it raises ChipError, with the call that failed."""
        struct, function = struct_of(call.spec, call, self._address), self._function(name)
        struct.context = self._context
        if call.workspace is not None:
            struct.workspace = self._address(call.workspace)
            struct.workspace_bytes = call.workspace.nbytes
        pointer = ctypes.byref(struct)
        return lambda: self._check(name, function(pointer), struct)

    def _check(self, name: str, status: int, call: CallStruct) -> None:
        if not status:
            return
        failed = (call.failed or b"").decode()
        if status in OWN:
            raise self._errors.refused(ChipLayer.OPERATORS, f"{name}: {OWN[status]} {failed}")
        error = self._errors.error(self._space(status), status, f"{name}: {failed}", (name,))
        if error.fatal and self._runtime is not None:
            try:
                self._runtime()
            except ChipError as beneath:
                raise ChipError(
                    beneath.fact, chip=error.chip, code=beneath.code, operators=(name,)
                ) from error
        raise error


def struct_of(
    spec: CallSpec, call: Call | None = None, address: Callable[[Tensor], int] | None = None
) -> CallStruct:
    """A call's operands and attributes; pointers where there is memory."""
    signature, struct = CATALOGUE[spec.op], CallStruct()
    for at, attr in enumerate(signature.attrs):
        value = spec.attrs[attr.name]
        struct.attributes[at] = value if isinstance(value, bool | int | float) else 0.0
    specs: dict[str, Spec | None] = {**spec.inputs, **spec.outputs}
    values: dict[str, Value | None] = {**call.inputs, **call.outputs} if call else {}
    for arg in (*signature.inputs, *signature.outputs):
        given, halves = specs[arg.name], _tensors(values.get(arg.name))
        for half, spec_of_half in enumerate(_halves(given)):
            operand = struct.operands[struct.count]
            _describe(operand, spec_of_half)
            if halves and address is not None:
                _place(operand, halves[half], address)
            struct.count += 1
    return struct


def _tensors(value: Value | None) -> tuple[Tensor | IndexPair, ...]:
    if isinstance(value, CacheView):
        return value.k, value.v
    if isinstance(value, Weight):
        return value.tensors
    return () if value is None else (value,)


def _halves(given: Spec | None) -> tuple[Spec | None, ...]:
    """A cache is two operands; the values of a latent one are narrower."""
    if not isinstance(given, CacheSpec):
        return (given,)
    return given, TensorSpec(given.value_shape, given.group.dtype, given.strides)


def _describe(operand: OperandStruct, spec: Spec | None) -> None:
    operand.rank = -1 if spec is None else len(spec.shape)
    if spec is None:
        return
    operand.dtype = CODES[dtype_name(spec)]
    operand.shape[: operand.rank] = spec.shape
    strides = contiguous_strides(spec.shape) if isinstance(spec, WeightSpec) else spec.strides
    operand.strides[: operand.rank] = strides


def _place(
    operand: OperandStruct, value: Tensor | IndexPair, address: Callable[[Tensor], int]
) -> None:
    if isinstance(value, IndexPair):
        operand.host = np.asarray(value.host).ctypes.data
        value = value.device
    operand.device = address(value)
