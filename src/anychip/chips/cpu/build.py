"""Kernels of the cpu chip: prebuilt or compiled, and the C interface of `kernels/abi.h`."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anychip.chips.cpu.build_isa import compiler_flags, runnable_sets
from anychip.contract.build import Build, Finding, Library, Verdict
from anychip.contract.compile import (
    BuildOrder,
    NoCompiler,
    build_error,
    cached_library,
    compile_library,
    compiler_version,
    find_compiler,
    is_intact,
)
from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.contract.prebuilt import Carried, carried, platform_folder

CHIP = "cpu"
LOG = logging.getLogger("anychip.chip")
KERNELS = Path(__file__).with_name("kernels")
SOURCES = (
    *("amx", "attention", "blocks", "cache", "expanded", "experts", "heads"),
    *("linear", "linear_grouped", "linear_int8", "linear_k", "logits", "pool"),
    *("recurrent", "replay", "rows", "sampling", "sizes", "weights"),
)

BY_COMPILER = "to have kernels compiled here say --chip-option kernels=compiled"
WAY_OUT = (
    "to go on without these kernels say --chip-option kernels=host (numpy, many times slower), "
    "or --chip-option isa=I with another instruction set"
)

PREBUILT = Path(__file__).with_name("prebuilt")
"""Where a wheel carries libraries, a folder a platform; absent in a checkout."""

SELF_CONTAINED = ("-static-libstdc++", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-s")
"""How those are linked: with the parts of libstdc++ that they use, since an older one may be where
they run. libgcc_s is there wherever numpy loads; within them it would ask for a newer glibc."""


@dataclass(frozen=True)
class KernelChoice:
    """Which kernels, for how many threads. folder: of those that are compiled here.

    origin: "prebuilt" (the wheel's), "compiled" (here), or "auto", the first that can be had.
    """

    isa: str
    threads: int
    folder: Path
    origin: str = "auto"


@dataclass(frozen=True)
class Kernels:
    """A library, and where it came from, for people."""

    path: Path
    origin: str


def order_for(isa: str, kernels: Path = KERNELS) -> BuildOrder:
    """The library of one instruction set, compiled where it runs."""
    sources = tuple(kernels / f"{name}.cpp" for name in SOURCES)
    return BuildOrder(CHIP, f"anychip_cpu_{isa}", sources, compiler_flags(isa))


def wheel_order(isa: str, kernels: Path = KERNELS, machine: str | None = None) -> BuildOrder:
    """The same, compiled for a wheel, which may be one for another machine."""
    order = order_for(isa, kernels)
    return replace(order, flags=compiler_flags(isa, machine), link=SELF_CONTAINED)


STATUS: dict[int, ErrorFact] = {
    code: ErrorFact(ChipLayer.OPERATORS, ErrorKind.INVALID, False, text)
    for code, text in enumerate(
        (
            "a token is outside of the vocabulary",
            "a position or a length is outside of its table",
            "a slot is outside of the cache",
            "a page is outside of the cache",
            "a row index is outside of its table",
            "a token is sent to an expert that there is not",
        ),
        start=1,
    )
}
"""Codes that kernels return: see Status in abi.h."""

ASK_FOR_SCRATCH = (
    *("attention", "attention_block", "expanded_attention", "mlp_block"),
    *("route_experts", "grouped_linear", "expert_mlp"),
)
"""Functions whose scratch depends on their whole struct."""

_TYPES: dict[str, type] = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "d": ctypes.c_double}
FIELDS: dict[str, str] = {
    "embedding": "p:pool,tokens,table,y i:rows,n,k,packed,format,y_type d:scale",
    "norm": "p:pool,x,residual,weight,y,sum i:rows,k,x_stride,type d:eps",
    "rotary": "p:pool,q,k,positions,cos_sin,q_out,k_out i:rows,heads,kv_heads,dim,rotary_dim,"
    "limit,q_stride,k_stride,neox,type",
    "linear": "p:pool,x,weight,bias,y,workspace i:rows,n,k,x_stride,y_stride,x_type,format,y_type "
    "d:scale,cap",
    "pack": "p:pool,source,target i:rows,k,first,format",
    "activation": "p:pool,x,y i:rows,inner,type,kind",
    "kv_write": "p:pool,k,v,slots,k_cache,v_cache i:rows,kv_heads,dim,k_stride,v_stride,"
    "pages,page_size,page_stride,slot_stride,head_stride,type,cache_type",
    "kv_copy_pages": "p:pool,k_cache,v_cache,sources,targets i:count,pages,page_bytes,page_stride",
    "attention": "p:pool,q,k_cache,v_cache,page_table,kv_lens,positions,token_rows,sinks,y,"
    "workspace i:tokens,heads,kv_heads,dim,rows,table_width,pages,page_size,q_stride,page_stride,"
    "slot_stride,head_stride,type,cache_type,causal,window,value_dim d:scale,softcap",
    "expanded_attention": "p:pool,q,k_cache,up,page_table,kv_lens,positions,token_rows,y,workspace "
    "i:tokens,heads,dim,rank,nope,up_rows,rows,table_width,pages,page_size,q_stride,page_stride,"
    "slot_stride,head_stride,type,cache_type,causal,window,whole d:scale,softcap",
    "qk_norm": "p:pool,q,k,q_weight,k_weight,q_out,k_out "
    "i:rows,heads,kv_heads,dim,q_stride,k_stride,type d:eps",
    "swiglu_clamp": "p:pool,x,y i:rows,inner,type d:alpha,limit",
    "route_experts": "p:pool,logits,bias,weights,ids,workspace "
    "i:rows,experts,k,scoring,renormalize,groups,groups_kept,top2 d:scale",
    "grouped_linear": "p:pool,x,weight,experts,bias,y,workspace "
    "i:rows,n,k,x_stride,type,format,count",
    "expert_mlp": "p:pool,x,gate_up,down,gate_up_bias,down_bias,weights,ids,y,workspace "
    "i:rows,k,inner,used,count,type,gate_up_format,down_format,kind d:alpha,limit",
    "mlp_block": "p:pool,x,residual,norm,gate_up,down,gate_up_bias,down_bias,y,sum,workspace "
    "i:rows,k,inner,x_stride,type,gate_up_format,down_format,kind d:eps",
    "attention_block": "p:pool,x,residual,norm,qkv,output,qkv_bias,output_bias,cos_sin,slots,"
    "k_cache,v_cache,page_table,kv_lens,positions,token_rows,y,sum,workspace "
    "i:tokens,k,x_stride,type,qkv_format,output_format,heads,kv_heads,dim,rotary_dim,limit,neox,"
    "rows,table_width,pages,page_size,page_stride,slot_stride,head_stride,cache_type,causal,window "
    "d:eps,scale,softcap",
    "causal_conv1d": "p:pool,x,weight,bias,state,y,state_from,state_to,cu_q,positions "
    "i:rows,tokens,slots,channels,width,x_stride,type,silu",
    "gated_delta_rule": "p:pool,q,k,v,decay,beta,state,y,state_from,state_to,cu_q,positions "
    "i:rows,tokens,slots,heads,key_heads,key_dim,value_dim,q_stride,k_stride,v_stride,type d:scale",
    "gather_rows": "p:pool,table,y,index i:count,limit,row_bytes,table_stride,y_stride",
    "scatter_rows": "p:pool,table,y,index i:count,limit,row_bytes,table_stride,y_stride",
    "softmax": "p:pool,logits,y i:rows,n,kind",
    "greedy": "p:pool,logits,y i:rows,n,kind",
    "sample": "p:pool,logits,temperature,top_k,top_p,min_p,noise,tokens,workspace i:rows,n",
    "mask_logits": "p:pool,logits,mask,y i:rows,n",
    "adjust_logits": "p:pool,logits,rows,ids,repetition,bias,y i:count,limit,n",
    "token_logprobs": "p:pool,logits,sampled,given,logprob,rank i:rows,n",
    "top_logprobs": "p:pool,logits,values,ids i:rows,n,top",
    "elements": "p:pool,a,b,y i:count,a_type,y_type,kind",
}
"""Function of abi.h -> its struct: pointers, 64-bit integers and doubles, in that order."""


def _fields(function: str) -> list[tuple[str, type]]:
    """Names and C types."""
    parts = (group.partition(":") for group in FIELDS[function].split())
    return [(n, _TYPES[kind]) for kind, _, names in parts for n in names.split(",")]


POINTERS = {f: frozenset(n for n, kind in _fields(f) if kind is ctypes.c_void_p) for f in FIELDS}
ARGUMENTS: dict[str, Callable[..., ctypes.Structure]] = {
    f: type(f, (ctypes.Structure,), {"_fields_": _fields(f)}) for f in FIELDS
}


def sizes_text(arguments: ctypes.Structure) -> str:
    """The integers of a struct, for people."""
    named = (f for f, kind in _fields(type(arguments).__name__) if kind is ctypes.c_int64)
    return ", ".join(f"{f}={getattr(arguments, f)}" for f in named)


class KernelLibrary:
    """A loaded library with its own pool of threads. `close` ends the threads."""

    def __init__(self, path: Path, isa: str, threads: int, origin: str = "") -> None:
        self.path, self.isa, self.threads, self.origin = path, isa, threads, origin
        try:
            self._c = ctypes.CDLL(str(path))
        except OSError as error:
            own = f"{BY_COMPILER}; " if origin.startswith("prebuilt") else ""
            text = f"{path} cannot be loaded: {error}; {own}{WAY_OUT}"
            raise build_error(CHIP, text) from error
        self._declare()
        self._check_sizes()
        self._ask_for_tiles()
        self.pool: int | None = self._c.anychip_pool_open(threads)
        self.panel_columns: int = self._c.anychip_panel_columns()

    def _declare(self) -> None:
        i64, p = ctypes.c_int64, ctypes.c_void_p
        declared = {
            "anychip_pool_open": ([i64], p),
            "anychip_pool_close": ([p], None),
            "anychip_ask_for_tiles": ([], ctypes.c_int32),
            "anychip_panel_columns": ([], i64),
            "anychip_panel_bytes": ([i64, i64], i64),
            "anychip_linear_workspace_of": ([i64, i64, i64, i64], i64),
            **{f"anychip_{f}_workspace": ([p, i64], i64) for f in ASK_FOR_SCRATCH},
            "anychip_replay": ([p, i64, p], i64),
            "anychip_struct_size": ([ctypes.c_char_p], i64),
        }
        for name, (arguments, result) in declared.items():
            function = getattr(self._c, name)
            function.argtypes, function.restype = arguments, result

    def _check_sizes(self) -> None:
        for function, structure in ARGUMENTS.items():
            theirs, ours = (
                self._c.anychip_struct_size(function.encode()),
                ctypes.sizeof(structure()),
            )
            if theirs != ours:
                text = f"{self.path}: the struct of {function} has {theirs} bytes, not {ours}"
                raise build_error(CHIP, text)

    def _ask_for_tiles(self) -> None:
        """AMX needs the system's leave, once a process; other libraries need none."""
        status = self._c.anychip_ask_for_tiles()
        if status:
            text = f"the system lends this process no AMX tiles: {os.strerror(status)}; {WAY_OUT}"
            raise build_error(CHIP, text)

    def arguments(self, function: str, **values: Any) -> ctypes.Structure:
        """A filled struct; fields that are not given are 0."""
        return ARGUMENTS[function](pool=self.pool, **values)

    def function(self, name: str) -> Callable[[int], int]:
        """A kernel that takes the address of its struct and returns a status."""
        function = getattr(self._c, f"anychip_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int32
        return function  # type: ignore[no-any-return]

    @property
    def replay(self) -> Callable[[Any, int, Any], int]:
        """Runs pairs of (function, struct) addresses: pointer to them, how many, and pointer to
        the status of one that fails; returns how many went well."""
        return self._c.anychip_replay

    def panel_bytes(self, code: int, k: int) -> int:
        """Bytes of one packed panel of a weight with K columns."""
        return int(self._c.anychip_panel_bytes(code, k))

    def linear_workspace(self, code: int, rows: int, k: int) -> int:
        """Scratch bytes of a linear with a weight of this format's code."""
        return int(self._c.anychip_linear_workspace_of(code, rows, k, self.threads))

    def workspace(self, function: str, arguments: ctypes.Structure) -> int:
        """Scratch bytes of one of ASK_FOR_SCRATCH whose sizes are in `arguments`."""
        ask = getattr(self._c, f"anychip_{function}_workspace")
        return int(ask(ctypes.addressof(arguments), self.threads))

    def close(self) -> None:
        """End the threads. A second close does nothing."""
        if self.pool is not None:
            self._c.anychip_pool_close(self.pool)
            self.pool = None


def load_kernels(choice: KernelChoice) -> KernelLibrary:
    """Find or compile (first time), and load. Raises NoCompiler, ChipError."""
    found = kernels_for(choice)
    return KernelLibrary(found.path, choice.isa, choice.threads, found.origin)


def kernels_for(choice: KernelChoice) -> Kernels:
    """The wheel's library where it fits, else one compiled here. Raises NoCompiler, ChipError.

    One that was meant to fit and does not is told loudly.
    """
    if choice.origin == "compiled":
        return Kernels(compiled(choice), "compiled here, as asked for")
    found = prebuilt(choice.isa)
    if found.path is not None:
        return Kernels(found.path, f"prebuilt {found.text}")
    if choice.origin == "prebuilt":
        text = f"{found.text}; leave kernels=prebuilt out to have them compiled here"
        raise build_error(CHIP, text, ErrorKind.UNSUPPORTED)
    if found.amiss:
        LOG.warning("chip '%s' does not use its prebuilt kernels: %s", CHIP, found.text)
    return Kernels(compiled(choice), f"compiled here: {found.text}")


def prebuilt(isa: str) -> Carried:
    """What this installation carries for an instruction set."""
    return carried(wheel_order(isa), PREBUILT / platform_folder())


def compiled(choice: KernelChoice) -> Path:
    """The library, from the cache or built now. A failure names what works without it."""
    try:
        return compile_library(order_for(choice.isa), cache_dir=choice.folder, progress=LOG.info)
    except ChipError as error:
        if error.fact.kind is not ErrorKind.KERNEL:
            raise
        fact = replace(error.fact, text=f"{error.fact.text}; {WAY_OUT}")
        raise ChipError(fact, chip=CHIP) from error


class CpuBuild(Build):
    """Sources beside this file; the compiler is optional, without it hostops serve."""

    def __init__(self, choice: KernelChoice) -> None:
        self._choice = choice

    def requires(self) -> tuple[Library, ...]:
        """A C++17 compiler where the wheel's kernels do not fit; nothing where they do."""
        if self._choice.origin != "compiled" and prebuilt(self._choice.isa).path is not None:
            return ()
        return (Library("g++ or clang++", "g++ (optional: numpy serves without it, slowly)"),)

    def versions(self) -> Mapping[str, str]:
        """Compiler and numpy."""
        return versions()

    def check(self) -> tuple[Finding, ...]:
        """Instruction set there, library carried or cached, a compiler where one is needed."""
        isa, there = self._choice.isa, self._choice.isa in runnable_sets()
        named = Finding("instruction set", Verdict.GOOD if there else Verdict.BAD, isa)
        if self._choice.origin == "compiled":
            return (named, *self._cached())
        found = prebuilt(isa)
        if found.path is not None:
            text = f"{found.path}, prebuilt {found.text}"
            return (named, Finding("kernels", Verdict.GOOD, text))
        if self._choice.origin == "prebuilt":
            step = "install a wheel that carries them, or leave kernels=prebuilt out"
            return (named, Finding("prebuilt kernels", Verdict.BAD, found.text, step))
        if found.amiss:
            step = "install the wheel again; until then kernels are compiled here"
            amiss = Finding("prebuilt kernels", Verdict.UNKNOWN, found.text, step)
            return (named, amiss, *self._cached())
        return (named, *self._cached())

    def _cached(self) -> tuple[Finding, ...]:
        """The compiler, and what it has made."""
        try:
            compiler = find_compiler(CHIP)
        except NoCompiler as error:
            step = "install g++, or a wheel with prebuilt kernels"
            return (Finding("C++ compiler", Verdict.BAD, error.fact.text, step),)
        order, folder = order_for(self._choice.isa), self._choice.folder
        path = cached_library(order, cache_dir=folder, compiler=compiler)
        built = is_intact(path)
        text = str(path) if built else f"not built yet, or damaged, in {path.parent}"
        return (
            Finding("C++ compiler", Verdict.GOOD, compiler.version),
            Finding("kernels", Verdict.GOOD if built else Verdict.UNKNOWN, text),
        )

    def compile(self) -> str:
        """Build unless the wheel or the cache has it."""
        return str(kernels_for(self._choice).path)


def versions() -> dict[str, str]:
    """Measured: numpy, and the compiler, or that there is none."""
    return {"numpy": np.__version__, "compiler": compiler_version(CHIP)}
