"""Instruction sets: which this processor has, best first, and the compiler's flags for each."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_AVX2 = ("avx2", "fma", "f16c")
VNNI = "avx512_vnni"
_BF16 = (*_AVX2, *_AVX512, "avx512_bf16", VNNI)
EMULATED = "amx-emulated"
"""The kernels of amx over tiles in software (kernels/tiles_emulated.h), to work on them without
such a processor. It runs where it is asked for by name: never chosen, in no wheel."""
FEATURES: dict[str, tuple[str, ...]] = {
    "amx": (*_BF16, "amx_tile", "amx_bf16", "amx_int8"),
    EMULATED: _BF16,
    "avx512bf16": _BF16,
    "avx512": (*_AVX2, *_AVX512),
    "avx2": _AVX2,
    "neon": (),
    "portable": (),
}
"""Instruction sets, best first, and the processor flags (as Linux spells them) that each needs."""

X86, ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")

FLAGS = ("-O3", "-std=c++17", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math")


_ARCH_PRCTL, _XCOMP_SUPPORTED, _TILE_DATA = 158, 0x1021, 18
"""Numbers of Linux on x86-64: the system call, ARCH_GET_XCOMP_SUPP, XFEATURE_XTILEDATA."""


def isas_of(machine: str) -> tuple[str, ...]:
    """The sets that an architecture (as `uname -m` spells it) can have, best first. Every
    aarch64 has NEON; another architecture has what its compiler makes of plain C++."""
    if machine in X86:
        return tuple(isa for isa in FEATURES if isa not in ("neon", EMULATED))
    return ("neon", "portable") if machine in ARM else ("portable",)


def processor_flags() -> frozenset[str]:
    """Feature flags of this processor; empty where they cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    line = next((text for text in lines if text.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())


def instruction_sets() -> tuple[str, ...]:
    """Those that this processor has, best first."""
    have = processor_flags()
    if not system_lends_tiles():
        have -= {"amx_tile"}
    return tuple(i for i in isas_of(platform.machine()) if have.issuperset(FEATURES[i]))


def runnable_sets() -> tuple[str, ...]:
    """Those that may be asked for here: this processor's, and emulated tiles where they can run."""
    have = instruction_sets()
    return (*have, EMULATED) if "avx512bf16" in have else have


def system_lends_tiles() -> bool:
    """Whether this Linux would let a process use the tile registers of AMX; asks, takes none."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    supported = ctypes.c_uint64(0)
    status = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _XCOMP_SUPPORTED, ctypes.byref(supported))
    return status == 0 and bool(supported.value >> _TILE_DATA & 1)


def compiler_flags(isa: str, machine: str | None = None) -> tuple[str, ...]:
    """Flags for an instruction set, compiled for this machine or another. Where products and sums
    are fused by hand, the compiler may not fuse more; elsewhere it does so wherever the target can,
    the same way in every tile."""
    if isa == "portable":
        baseline = ("-mno-avx",) if (machine or platform.machine()) in X86 else ()
        return (*FLAGS, "-ffp-contract=fast", *baseline)
    spelled = (f.replace("avx512_", "avx512").replace("amx_", "amx-") for f in FEATURES[isa])
    named = tuple(f"-m{flag}" for flag in spelled) if isa != "neon" else ("-DANYCHIP_NEON",)
    tiles = ("-DANYCHIP_TILES_EMULATED",) if isa == EMULATED else ()
    return (*FLAGS, "-ffp-contract=off", *named, *tiles)
