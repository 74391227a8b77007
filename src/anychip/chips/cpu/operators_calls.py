"""How an operator's call becomes a C call: structs of `kernels/abi.h`, filled from operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anychip.chips.cpu.build import POINTERS, KernelLibrary
from anychip.chips.cpu.build_isa import FEATURES
from anychip.chips.cpu.capture import KernelLaunch
from anychip.chips.cpu.memory import address_of
from anychip.chips.cpu.memory_parts import FORMAT_CODES, PANEL_FORMATS
from anychip.contract.cache import KNOWN_LAYOUTS, CacheSpec, CacheView
from anychip.contract.dtype import DType
from anychip.contract.formats import W8A8
from anychip.contract.operators import Call, CallSpec, DtypeRow, Implementation, Launch, Value
from anychip.contract.tensor import IndexPair, Tensor
from anychip.contract.weights import Weight, WeightSpec

ACTIVATIONS = ("float32", "bfloat16")
STORAGE = ("float32", "bfloat16", "float16")
ALL_FORMATS = tuple(FORMAT_CODES)
INT8_FORMATS = W8A8
EXACT_FORMATS = tuple(name for name in ALL_FORMATS if name not in INT8_FORMATS)
FORMATS = tuple(name for name in PANEL_FORMATS if name not in INT8_FORMATS)
"""Weights that are multiplied by activations as they are; of those, the ones without a table."""
ROUNDED = {"float32": 16384.0, "bfloat16": 4.0}
"""Tolerance by dtype of activations where they are rounded to int8, as these formats want it: by a
hundredth or so, where limits are those of the dtype."""
SCALED_CODES = {"int8": 32, "float8_e4m3": 33}
"""Codes in abi.h of what a cache holds with scales."""
CACHES = (*STORAGE, *SCALED_CODES)
MAX_HEAD_DIM = 512

Fields = dict[str, Any]
Covers = Callable[[CallSpec], "str | None"]
Scratch = Callable[[KernelLibrary, CallSpec], int]
"""Workspace bytes of a call."""


@dataclass(frozen=True)
class Kernel:
    """How an operator's call becomes a C call.

    function: its name in abi.h without the prefix. fields: sizes and codes from a call, and
    pointers that are not named as the call's arguments are. workspace: bytes. variant: sets
    kernels of one operator apart. latent: see Implementation. needs, lacks: a processor's feature
    that decides whether it is offered.
    """

    op: str
    function: str
    fields: Callable[[Call], Fields]
    types: Mapping[str, tuple[str, ...]]
    when: Covers = lambda call: None
    workspace: Scratch = lambda library, call: 0
    aliases: tuple[tuple[str, str], ...] = ()
    variant: str = ""
    needs: str = ""
    lacks: str = ""
    tolerance: float = 1.0
    latent: bool = False

    def suits(self, isa: str) -> bool:
        """Whether a library of this instruction set offers it."""
        have = FEATURES[isa]
        return (not self.needs or self.needs in have) and self.lacks not in have

    def implementation(self, library: KernelLibrary) -> Implementation:
        """The same, bound to a loaded library."""
        return Implementation(
            op=self.op,
            id=f"{library.isa}.{self.op}{self.variant}",
            prepare=lambda call: self._prepare(library, call),
            dtypes=(DtypeRow(self.types),),
            when=self.when,
            workspace=lambda call: self.workspace(library, call),
            aliases=self.aliases,
            tolerance=self.tolerance,
            latent=self.latent,
        )

    def _prepare(self, library: KernelLibrary, call: Call) -> Launch:
        fields = _pointers(self.function, call) | self.fields(call)
        arguments = library.arguments(self.function, **fields)
        return KernelLaunch(self.op, library.function(self.function), arguments)


def _pointers(function: str, call: Call) -> Fields:
    """Pointer fields that are named as an argument of the call; absent ones stay null."""
    values = {**call.inputs, **call.outputs, "workspace": call.workspace}
    named = POINTERS[function] & set(values)
    return {n: _address(values[n]) for n in named if values[n] is not None}


def _address(value: Value | None) -> int:
    if isinstance(value, IndexPair):
        return address_of(value.device)
    if isinstance(value, Weight):
        return address_of(value.tensors[0])
    assert isinstance(value, Tensor)
    return address_of(value)


def tensor_of(call: Call, name: str) -> Tensor:
    """An input; of an index its copy on the device."""
    value = call.inputs[name]
    if isinstance(value, IndexPair):
        return value.device
    assert isinstance(value, Tensor)
    return value


def code_of(dtype: DType | str) -> int:
    """The code of a storage type or weight format in abi.h."""
    return FORMAT_CODES[str(dtype)]


def cache_code(dtype: DType) -> int:
    """The code of what a cache is held in."""
    return SCALED_CODES.get(dtype.value) or code_of(dtype)


def weight_of(call: Call, name: str) -> Weight:
    """A loaded weight."""
    value = call.inputs[name]
    assert isinstance(value, Weight)
    return value


def cache_fields(call: Call) -> tuple[CacheView, Fields]:
    """The cache and where its slots lie; keys and values are laid out alike."""
    view = call.inputs["cache"]
    assert isinstance(view, CacheView)
    page, slot, head, element = view.k.strides
    assert view.k.strides == view.v.strides and element == 1
    return view, {
        "k_cache": address_of(view.k),
        "v_cache": address_of(view.v),
        "pages": view.spec.pages,
        "page_size": view.spec.group.page_size,
        "page_stride": page,
        "slot_stride": slot,
        "head_stride": head,
        "cache_type": cache_code(view.spec.group.dtype),
    }


def cache_covers(cache: CacheSpec) -> str | None:
    """What of a cache's layout is not covered."""
    if cache.group.layout in KNOWN_LAYOUTS:
        return None
    return f"cache layout {cache.group.layout}, it covers {', '.join(KNOWN_LAYOUTS)}"


def rotary_covers(rotary_dim: int, head_dim: int, columns: int) -> str | None:
    """What of a rotation is not covered; columns: those of the table of cosines and sines."""
    if rotary_dim % 2 or rotary_dim > head_dim or columns != rotary_dim:
        return f"rotary_dim {rotary_dim} with heads of {head_dim} and a table of {columns}"
    return None


def linear_covers(call: CallSpec, *weights: str) -> str | None:
    """Whether one of these weights was loaded for something else."""
    for name in weights:
        weight = call.inputs[name]
        if isinstance(weight, WeightSpec) and weight.dense:
            return f"{name} was loaded for lookups alone, row by row"
    return None


def attends(heads: int, head_dim: int, cache: CacheSpec) -> str | None:
    """What of an attention's sizes is not covered."""
    if head_dim > MAX_HEAD_DIM:
        return f"heads of {head_dim}, it covers up to {MAX_HEAD_DIM}"
    if heads % cache.group.kv_heads:
        return f"{heads} query heads are no multiple of {cache.group.kv_heads} KV heads"
    return cache_covers(cache)


def scratch_of(function: str, sizes: Callable[[CallSpec], Fields]) -> Scratch:
    """What the kernel itself asks for, given the sizes of a call: one of ASK_FOR_SCRATCH."""

    def scratch(library: KernelLibrary, call: CallSpec) -> int:
        return library.workspace(function, library.arguments(function, **sizes(call)))

    return scratch
