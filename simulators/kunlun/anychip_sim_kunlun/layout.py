"""The files of a tree that are not compiled: headers, version files, notices, the board."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from anychip_sim_kunlun.libraries import NATIVE, RUNTIME, SDK
from anychip_sim_kunlun.order import TreeOrder

XRE_HEADERS = ("runtime.h", "runtime_ex.h", "defs.h", "version.h", "xpuml.h")
NOTICE = """This SDK is SIMULATED. No Kunlun card is behind it, and nothing here was made by the
vendor: the interfaces are re-declared by hand from public facts, the arithmetic runs on the
processor. It was built by anychip-sim-kunlun; what is a guess is marked in AnyChip's ABI tables.
"""
FOREIGN_SMI = """#!/bin/sh
# Stands for the tool of the same name by another vendor: it knows neither -m nor -q.
echo "Intel XPU System Management Interface -- v1.2"
[ $# -eq 0 ] && exit 0
echo "The following argument was not expected: $1" >&2
exit 106
"""


def write_headers(tree: Path, runtime_version: str) -> None:
    """sdk/include: the classic form as the sources have it, and the runtime's split form."""
    include = tree / "sdk" / "include"
    shutil.copytree(NATIVE / "include", include)
    version = include / "xpu" / "version.h"
    version.write_text(_version_header(runtime_version))
    split = include / "xre" / "xpu"
    split.mkdir(parents=True, exist_ok=True)
    for name in XRE_HEADERS:
        if (include / "xpu" / name).exists():
            shutil.copy2(include / "xpu" / name, split / name)


def version_defines(runtime_version: str) -> tuple[str, ...]:
    """The numbers of the runtime, for its own sources."""
    parts = (*runtime_version.split("."), "0", "0")
    names = ("MAJOR", "MINOR", "THIRD")
    return tuple(f"XPURT_VERSION_{n}={value}" for n, value in zip(names, parts, strict=False))


def write_versions(tree: Path, order: TreeOrder) -> None:
    """One version file a component.

    `version:` of XRE is what the vendor's install_rt.sh greps for, `Date:` of XHPC what
    FastDeploy's setup_ops.py reads. The files of the other parts are guesses of the same form.
    """
    (tree / "runtime" / "version").write_text(f"version:{order.runtime}\n")
    for name, value in order.profile.components.items():
        if name == "XRE":
            continue
        file = tree / "sdk" / name.lower() / "version.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        date = value.rpartition("/")[2] if name == "XHPC" else ""
        file.write_text(f"Version: {value}\n" + (f"Date: {date}\n" if date else ""))


def write_notices(tree: Path) -> None:
    """Nobody shall take this for the vendor's SDK."""
    for folder in (tree, tree / "sdk", tree / "runtime"):
        (folder / "SIMULATED.txt").write_text(NOTICE)


def write_tools(tree: Path, foreign: bool) -> None:
    """`xpu-smi` beside `xpu_smi`, as the vendor installs it; or another vendor's instead."""
    ours, other = tree / "bin" / "xpu_smi", tree / "bin" / "xpu-smi"
    if foreign:
        ours.unlink()
        other.write_text(FOREIGN_SMI)
        other.chmod(0o755)
    else:
        other.symlink_to(ours.name)


def duplicate(library: Path) -> None:
    """A copy, and the link without number, in the other lib folder of the tree."""
    ours, tree = library.parent, library.parents[2]
    other = tree / (SDK if ours == tree / RUNTIME else RUNTIME)
    for name in _names(library):
        shutil.copy2(ours / name, other / name, follow_symlinks=False)


def remove(library: Path) -> None:
    """The library and its link."""
    for name in _names(library):
        (library.parent / name).unlink()


def _names(library: Path) -> set[str]:
    return {library.name, library.name.partition(".so")[0] + ".so"}


def files_of(tree: Path) -> Sequence[str]:
    """Every file of a tree but the board, which is written while it is used."""
    found = (path for path in tree.rglob("*") if not path.is_dir() or path.is_symlink())
    names = (str(path.relative_to(tree)) for path in found)
    return sorted(name for name in names if not name.startswith("state/"))


def _version_header(runtime_version: str) -> str:
    lines = [f"#define {define.replace('=', ' ')}" for define in version_defines(runtime_version)]
    head = ["// Written by the tree builder.", "#ifndef XPU_VERSION_H", "#define XPU_VERSION_H"]
    return "\n".join([*head, "", *lines, "", "#endif", ""])
