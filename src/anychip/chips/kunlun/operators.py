"""Operators of the kunlun chip: kernels/operators.tsv says what serves each, the shim calls it.

A call becomes one struct of kernels/shim.h, a launch is one C call. Which vendor calls are made
for it, in which units, is the shim's business.
"""

from __future__ import annotations

import csv
import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from anychip.chips.kunlun.memory import CHIP, KunlunMemory, KunlunQueue, address_of, vendor_error
from anychip.contract.cache import HND, CacheSpec, CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.operators import (
    Call,
    CallSpec,
    DtypeRow,
    Implementation,
    Launch,
    OperatorTable,
    Value,
)
from anychip.contract.signature import Spec, dtype_name
from anychip.contract.tensor import IndexPair, Shape, Tensor, contiguous_strides
from anychip.contract.weights import (
    PLAIN_FORMATS,
    HostWeight,
    Weight,
    Weights,
    WeightSpec,
    WeightUse,
)
from anychip.hostops import NUMPY_DTYPES

TABLE = Path(__file__).parent / "kernels" / "operators.tsv"
CODES = {name: code for code, name in enumerate(("float32", "float16", "bfloat16", "int32"))}
CODES |= {"int8": 4, "uint8": 5, "bool": 6}
MAX_RANK, MAX_OPERANDS, MAX_ATTRIBUTES = 6, 20, 8
OWN = {
    -9001: "its workspace is too small",
    -9002: "a dtype that it does not cover",
    -9003: "raised",
}
"""Statuses of the shim itself; those of the vendor are XDNN's, from 700 on the runtime's."""
CLASSES = {"floats": PLAIN_FORMATS, "numbers": (*PLAIN_FORMATS, "int32"), "any": tuple(CODES)}
"""Words that stand for several dtypes in the table."""
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256, 512)
MOST_ROWS = 1023
"""What the vendor's attention over pages takes."""


class OperandStruct(ctypes.Structure):
    """Operand of kernels/shim.h."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("dtype", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    )


class CallStruct(ctypes.Structure):
    """Call of kernels/shim.h. held: the call whose host halves it points to."""

    held: Call | None = None

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
    """The compiled shim. Raises ChipError where it does not fit this file."""

    def __init__(self, path: Path | str) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.anychip_kunlun_struct_size.restype = ctypes.c_int64
        self._library.anychip_kunlun_open.restype = ctypes.c_void_p
        self._context: int | None = None
        size = self._library.anychip_kunlun_struct_size()
        if size != ctypes.sizeof(CallStruct):
            text = f"the shim's call has {size} bytes, this chip's {ctypes.sizeof(CallStruct)}"
            raise invalid(CHIP, ChipLayer.BUILD, f"{text}: build it anew")

    def has(self, name: str) -> bool:
        """Whether it was built with this row of the table."""
        return hasattr(self._library, f"anychip_kunlun_{name}")

    def open(self, stream: int) -> None:
        """Make the operators' context, on the queue. Raises ChipError."""
        self._context = self._library.anychip_kunlun_open(ctypes.c_void_p(stream))
        if self._context is None:
            raise vendor_error("XDNN", 2, "create_context gave none")

    def close(self) -> None:
        """Give the context back; a second time does nothing."""
        if self._context is not None:
            self._library.anychip_kunlun_close(ctypes.c_void_p(self._context))
            self._context = None

    def workspace(self, name: str, spec: CallSpec) -> int:
        """Bytes that a call needs."""
        call = _struct(spec)
        _check(name, self._function(name)(ctypes.byref(call)), call)
        return int(call.workspace_bytes)

    def prepared(self, name: str, call: Call) -> Callable[[], None]:
        """What queues the call's vendor calls; it raises ChipError."""
        struct, function = _struct(call.spec, call), self._function(name)
        struct.context, struct.held = self._context, call
        if call.workspace is not None:
            struct.workspace = address_of(call.workspace)
            struct.workspace_bytes = call.workspace.nbytes
        pointer = ctypes.byref(struct)
        return lambda: _check(name, function(pointer), struct)

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"anychip_kunlun_{name}")


def _check(name: str, status: int, call: CallStruct) -> None:
    """Raises ChipError for a status that is not 0, with the vendor call that gave it."""
    if not status:
        return
    failed = (call.failed or b"").decode()
    if status in OWN:
        raise invalid(CHIP, ChipLayer.OPERATORS, f"{name}: {OWN[status]} {failed}")
    layer = "XRE" if abs(status) >= 700 else "XDNN"
    raise vendor_error(layer, status, f"{name}: {failed}", (name,))


def _struct(spec: CallSpec, call: Call | None = None) -> CallStruct:
    """A call's operands in the signature's order, inputs first; pointers where there is memory."""
    signature, struct = CATALOGUE[spec.op], CallStruct()
    for at, attr in enumerate(signature.attrs):
        value = spec.attrs[attr.name]
        struct.attributes[at] = value if isinstance(value, bool | int | float) else 0.0
    specs: dict[str, Spec | None] = {**spec.inputs, **spec.outputs}
    values: dict[str, Value | None] = {**call.inputs, **call.outputs} if call else {}
    for arg in (*signature.inputs, *signature.outputs):
        given, halves = specs[arg.name], _tensors(values.get(arg.name))
        for half in range(2 if isinstance(given, CacheSpec) else 1):
            operand = struct.operands[struct.count]
            _describe(operand, given)
            if halves:
                _place(operand, halves[half])
            struct.count += 1
    return struct


def _tensors(value: Value | None) -> tuple[Tensor | IndexPair, ...]:
    if isinstance(value, CacheView):
        return value.k, value.v
    if isinstance(value, Weight):
        return value.tensors
    return () if value is None else (value,)


def _describe(operand: OperandStruct, spec: Spec | None) -> None:
    operand.rank = -1 if spec is None else len(spec.shape)
    if spec is None:
        return
    operand.dtype = CODES[dtype_name(spec)]
    operand.shape[: operand.rank] = spec.shape
    strides = contiguous_strides(spec.shape) if isinstance(spec, WeightSpec) else spec.strides
    operand.strides[: operand.rank] = strides


def _place(operand: OperandStruct, value: Tensor | IndexPair) -> None:
    if isinstance(value, IndexPair):
        operand.host = np.asarray(value.host).ctypes.data
        value = value.device
    operand.device = address_of(value)


def _sizes(call: CallSpec, *names: str) -> list[Shape]:
    specs = {**call.inputs, **call.outputs}
    return [s.shape for s in (specs[n] for n in names or specs) if s is not None]


def _few_dimensions(call: CallSpec) -> str | None:
    most = max(map(len, _sizes(call)))
    return f"{most} dimensions, it takes {MAX_RANK}" if most > MAX_RANK else None


def _rotation(call: CallSpec) -> str | None:
    (q, table), dim = _sizes(call, "q", "cos_sin"), call.attrs["rotary_dim"]
    if table[1] != dim or dim % 2 or dim > q[2]:
        return f"rotary_dim {dim} with heads of {q[2]} and a table of {table[1]}"
    partial = dim != q[2] and not call.attrs["neox"]
    return "neighbours are rotated over whole heads alone" if partial else None


def _layout(call: CallSpec) -> str | None:
    cache = call.inputs["cache"]
    assert isinstance(cache, CacheSpec)
    layout = cache.group.layout
    return None if layout == HND else f"cache layout {layout}, it covers {HND}"


def _heads(call: CallSpec) -> str | None:
    (_, heads, _), (_, _, groups, _) = _sizes(call, "q", "cache")
    text = f"{heads} query heads are no multiple of {groups} KV heads"
    return text if heads % groups else _layout(call)


def _vendor_attention(call: CallSpec) -> str | None:
    (_, _, dim), (_, size, _, _), (rows, pages) = _sizes(call, "q", "cache", "page_table")
    asked = call.attrs
    reasons = {
        f"heads of {dim}": dim not in HEAD_SIZES,
        f"{rows:,} rows, it takes {MOST_ROWS:,}": rows > MOST_ROWS,
        "it has no soft cap": asked["softcap"] > 0,
        "it is causal": not asked["causal"],
        "it ignores a window": 0 < asked["window"] < pages * size,
        f"it scales by 1 / sqrt({dim})": abs(asked["scale"] * sqrt(dim) - 1) > 1e-6,
    }
    return next((reason for reason, holds in reasons.items() if holds), None) or _heads(call)


GUARDS: dict[str, Callable[[CallSpec], str | None]] = {
    "": _few_dimensions,
    "rotation": _rotation,
    "layout": _layout,
    "heads": _heads,
    "vendor attention": _vendor_attention,
}
"""Words of the table's column `guard`."""


def table_rows() -> Iterator[dict[str, str]]:
    """The rows of kernels/operators.tsv: columns by name."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def operator_table(
    shim: Shim, memory: KunlunMemory, queue: KunlunQueue, *, simulated: bool = False
) -> OperatorTable:
    """Every row that the shim was built with, on the queue. Opens the shim.

    simulated: a simulator is what was assumed, so that nothing has to be proved on it. Raises
    ChipError.
    """
    shim.open(queue.stream.handle)
    found = [_implementation(row, shim, queue) for row in table_rows() if shim.has(row["name"])]
    known = [replace(i, unproved=i.unproved and not simulated) for i in found]
    return OperatorTable(tuple(known))


def _implementation(row: Mapping[str, str], shim: Shim, queue: KunlunQueue) -> Implementation:
    name = row["name"]

    def prepare(call: Call) -> Launch:
        put = shim.prepared(name, call)

        def launch() -> None:
            queue.stream.use()
            put()
            queue.launched(row["operator"])

        return launch

    return Implementation(
        op=row["operator"],
        id=f"{CHIP}.{name}",
        prepare=prepare,
        dtypes=_dtype_rows(row),
        when=GUARDS[row["guard"]],
        workspace=lambda call: shim.workspace(name, call),
        reads_host=row["reads_host"] == "yes",
        call=row["call"],
        assumed=row["assumed"],
        unproved=row["evidence"] == "guess",
    )


def _dtype_rows(row: Mapping[str, str]) -> tuple[DtypeRow, ...]:
    """From "X=floats W=float32; X=float16 W=float16": rows between semicolons."""
    parts = (dict(word.split("=") for word in part.split()) for part in row["types"].split(";"))
    kinds = ({k: CLASSES.get(v, (v,)) for k, v in part.items()} for part in parts)
    return tuple(DtypeRow(kind, row["compute"]) for kind in kinds)


class KunlunWeights(Weights):
    """Dense and row-major, parts stacked; parts of different formats become float32."""

    def __init__(self, memory: KunlunMemory) -> None:
        self._memory = memory

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """Size and format; allocates nothing. Raises ChipError (invalid)."""
        unknown = sorted(set(formats) - set(PLAIN_FORMATS))
        if unknown:
            text = f"weight format {unknown[0]}; taken are {', '.join(PLAIN_FORMATS)}"
            raise invalid(CHIP, ChipLayer.OPERATORS, text)
        if not shapes or len({shape[1:] for shape in shapes}) != 1:
            raise invalid(CHIP, ChipLayer.OPERATORS, f"parts of shapes {shapes} do not stack")
        dtype = DType(formats[0]) if len(set(formats)) == 1 else DType.FLOAT32
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        return WeightSpec(dtype.value, shape, prod(shape) * dtype.itemsize, dense=True)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Copy the parts in, one behind the other. Raises ChipError."""
        formats, shapes = tuple(p.format for p in parts), tuple(p.shape for p in parts)
        spec = self.plan(formats, shapes, uses)
        sources = [_values(part) for part in parts]
        buffer = self._memory.allocate(spec.nbytes)
        whole, start = Tensor(spec.shape, DType(spec.format), buffer=buffer), 0
        for part, source in zip(parts, sources, strict=True):
            held = source.astype(NUMPY_DTYPES[whole.dtype], copy=False)
            self._memory.copy_in(whole.view(part.shape, offset=start), held.view(np.uint8).data)
            start += source.size
        return Weight(spec, (whole,), dense=whole)

    def release(self, weight: Weight) -> None:
        """Free the one buffer."""
        self._memory.free(weight.tensors[0].buffer)


def _values(part: HostWeight) -> np.ndarray:
    """A part's elements in its own type. Raises ChipError (invalid)."""
    held = NUMPY_DTYPES[DType(part.format)]
    expected = prod(part.shape) * held.itemsize
    if part.data.nbytes != expected:
        text = f"a {part.format} weight {part.shape} has {part.data.nbytes:,} bytes"
        raise invalid(CHIP, ChipLayer.OPERATORS, f"{text}, not {expected:,}")
    return np.frombuffer(part.data, held)
