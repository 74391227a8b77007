"""What the dot products of one core reach in registers alone: see peak.cpp."""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("peak.cpp")
FLAGS = ("-O3", "-std=c++17", "-mavx512f", "-mavx512bw", "-mavx512bf16", "-mavx512vnni")
NEEDED = frozenset({"avx512f", "avx512bw", "avx512_bf16", "avx512_vnni"})
NAMES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True)
class Peaks:
    """GFLOP/s of one core by instruction; empty where the processor lacks them."""

    rates: dict[str, float]

    def of(self, format: str) -> float:
        """What a weight format's products are made of; 0 where it is not known. A quantized
        number meets two bytes of a row, so that its peak is bfloat16's."""
        return self.rates.get({"w8a8": "int8", "float32": "float32"}.get(format, "bfloat16"), 0.0)

    def told(self) -> str:
        """A line for people."""
        if not self.rates:
            return "no peaks: the processor lacks one of " + ", ".join(sorted(NEEDED))
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in self.rates.items())
        return f"one core's dot products in registers, GFLOP/s: {rates}"


def measured_peaks() -> Peaks:
    """Compiles the loops. Raises ChipError where there is no compiler."""
    from anychip.chips.cpu.build_isa import processor_flags
    from anychip.contract.compile import BuildOrder, compile_library

    if not processor_flags() >= NEEDED:
        return Peaks({})
    order = BuildOrder("cpu", "anychip_bench_peak", (SOURCE,), FLAGS)
    with tempfile.TemporaryDirectory() as folder:
        path = compile_library(order, cache_dir=Path(folder), progress=lambda _: None)
        library = ctypes.CDLL(str(path))
    found = {}
    for name in NAMES:
        function = getattr(library, f"peak_{name}")
        function.restype = ctypes.c_double
        found[name] = function() / 1e9
    return Peaks(found)
