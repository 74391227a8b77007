"""The vendor's libraries as a table: what each is made of, where it lies, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anychip_sim_kunlun.profiles import Profile

NATIVE = Path(__file__).with_name("native")
"""The C++ sources."""

SDK, RUNTIME = "sdk/lib", "runtime/lib"

RULES_OF_A_CALL = "xdnn/call.cpp"
"""Compiled into each library of operators: none may lean on what a vendor's library lacks."""

MAIN_FILES = {"make_board.cpp"}
"""Programs that lie between the sources of a library."""


def matching(patterns: Sequence[str]) -> tuple[Path, ...]:
    """The files of native/ that match, each once, sorted."""
    return tuple(sorted({file for pattern in patterns for file in NATIVE.glob(pattern)}))


@dataclass(frozen=True)
class Library:
    """One shared library.

    patterns: its sources below native/. needs: stems of our libraries that end up in its DT_NEEDED.
    system: the linker's names of system libraries. component: whose version it has.
    abi: the number in its soname; 0 where the vendor's soname has none; -1 the profile's.
    least: the least runtime_abi of a profile that has it. evidence: where name and needs are from.
    """

    stem: str
    patterns: tuple[str, ...]
    place: str
    component: str
    needs: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    abi: int = 0
    least: int = 1
    evidence: str = ""

    def soname(self, profile: Profile) -> str:
        """The name that dependents record and the loader looks for."""
        number = profile.runtime_abi if self.abi < 0 else self.abi
        return f"lib{self.stem}.so.{number}" if number else f"lib{self.stem}.so"

    def sources(self) -> tuple[Path, ...]:
        """Its C++ files, sorted."""
        return tuple(s for s in matching(self.patterns) if s.name not in MAIN_FILES)


def libraries_of(profile: Profile) -> list[Library]:
    """Those that the profile's SDK has, in the order in which they are linked."""
    return [library for library in LIBRARIES if library.least <= profile.runtime_abi]


@dataclass(frozen=True)
class Program:
    """One program, where it lies in the tree, and the patterns of its sources."""

    name: str
    patterns: tuple[str, ...]
    place: str


LIBRARIES: tuple[Library, ...] = (
    Library(
        "xpurt",
        ("runtime/*.cpp",),
        RUNTIME,
        "XRE",
        system=("pthread", "dl", "rt"),
        abi=-1,
        evidence="libxpurt.so.1, with XRE 5 libxpurt.so.2: Paddle cmake/external/xpu.cmake",
    ),
    Library(
        "xpuml",
        ("xpuml/*.cpp",),
        RUNTIME,
        "XRE",
        system=("pthread",),
        abi=1,
        evidence="libxpuml.so.1: Paddle cmake/external/xpu.cmake",
    ),
    Library(
        "xpuapi",
        ("xdnn/*.cpp", "llm/xpuapi/*.cpp"),
        SDK,
        "XHPC",
        needs=("xpurt",),
        evidence="name: Paddle cmake; that it needs libxpurt is a guess",
    ),
    Library(
        "xpu_blas",
        ("llm/blas/*.cpp", RULES_OF_A_CALL),
        SDK,
        "XHPC",
        needs=("xpuapi", "xpurt"),
        least=2,
        evidence="name, XRE 5 alone: Paddle cmake; needs are a guess",
    ),
    Library(
        "xpu_flash_attention",
        ("llm/attention/*.cpp", RULES_OF_A_CALL),
        SDK,
        "XHPC",
        needs=("xpuapi", "xpurt"),
        least=2,
        evidence="name, XRE 5 alone: Paddle cmake; needs are a guess",
    ),
    Library(
        "apiinfer",
        ("llm/infer_ops/*.cpp", RULES_OF_A_CALL),
        SDK,
        "XVLLM",
        needs=("xpuapi", "xpurt"),
        least=2,
        evidence="name and package: FastDeploy setup_ops.py (P800 alone); needs are a guess",
    ),
    Library(
        "xft_blocks",
        ("llm/blocks/*.cpp", RULES_OF_A_CALL),
        SDK,
        "XVLLM",
        least=2,
        needs=("apiinfer", "xpu_flash_attention", "xpu_blas", "xpuapi", "xpurt"),
        evidence="name and package: FastDeploy setup_ops.py (P800 alone); needs are a guess",
    ),
    Library(
        "bkcl",
        ("bkcl/*.cpp",),
        SDK,
        "XCCL",
        needs=("xpurt",),
        system=("pthread", "rt"),
        evidence="name: Paddle cmake; FlagCX names libxpucuda.so.1 and libxpuml.so.1 as needed,"
        " of which this simulator has no CUDA layer",
    ),
)

PROGRAMS: tuple[Program, ...] = (
    # Like the vendor's tool, xpu_smi has the telemetry inside and needs no library of ours.
    Program(
        "xpu_smi",
        ("smi/*.cpp", "xpuml/functions.cpp", "xpuml/session.cpp", "xpuml/texts.cpp"),
        "bin",
    ),
    Program("make_board", ("runtime/make_board.cpp",), "libexec"),
)
