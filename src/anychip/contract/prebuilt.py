"""Libraries that were compiled before, as a wheel carries them, and whether they fit what is here.

Beside the libraries lies a manifest: for each the digest of all that it was made of (sources,
headers, flags), its own digest, the compiler, and the C library that it needs. One that was made of
anything else than what lies in this installation is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip.contract.compile import HEADERS, BuildOrder
from anychip.contract.version import dotted

MANIFEST = "manifest.json"
VERSION = 1
"""Of the manifest's form; another one is not read."""


@dataclass(frozen=True)
class Carried:
    """What an installation carries for an order. text: who made the library; or why there is none.

    path: None where there is none that fits. amiss: one was meant to be there, and does not fit.
    """

    path: Path | None
    text: str
    amiss: bool = False


def platform_folder(machine: str | None = None) -> str:
    """Name of the folder of this system's libraries, as `linux_x86_64`."""
    return f"{platform.system().lower()}_{machine or platform.machine()}"


def made_of(order: BuildOrder) -> str:
    """SHA-256 of all that decides a library, but for the compiler and the machine it runs on."""
    headers = {h for s in order.sources for pattern in HEADERS for h in s.parent.glob(pattern)}
    digest = hashlib.sha256()
    for file in (*order.sources, *order.optional, *sorted(headers)):
        digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    for text in (*order.flags, "", *order.link, "", *order.depends):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def write_manifest(
    folder: Path, libraries: Mapping[Path, BuildOrder], *, compiler: str, glibc: Sequence[int]
) -> Path:
    """Tell of the libraries in a folder what they are made of, for `carried` to compare.

    compiler: its version line. glibc: the oldest version that has all symbols they need.
    """
    entries = {
        order.name: {
            "file": path.name,
            "made_of": made_of(order),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path, order in libraries.items()
    }
    told = {"version": VERSION, "compiler": compiler, "glibc": list(glibc), "libraries": entries}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return manifest


def carried(order: BuildOrder, folder: Path) -> Carried:
    """The library of this order in a folder of libraries compiled before, if it fits."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return _compared(order, folder, told)
    except FileNotFoundError:
        return Carried(None, "this installation carries no prebuilt kernels for this platform")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"the manifest {folder / MANIFEST} cannot be read: {type(error).__name__}: {error}"
        return Carried(None, text, amiss=True)


def _compared(order: BuildOrder, folder: Path, told: Mapping[str, Any]) -> Carried:
    """Raises KeyError, TypeError, AttributeError where the manifest has another form."""
    if told["version"] != VERSION:
        return Carried(
            None, f"{folder / MANIFEST} has version {told['version']}, not {VERSION}", True
        )
    entry = told["libraries"].get(order.name)
    if entry is None:
        have = ", ".join(told["libraries"]) or "none"
        return Carried(None, f"this installation carries no prebuilt {order.name}, but {have}")
    path = folder / Path(entry["file"]).name
    amiss = _digest_amiss(path, entry["sha256"]) or _glibc_amiss(told["glibc"])
    if entry["made_of"] != made_of(order):
        amiss = "was made of other sources or flags than lie here"
    if amiss:
        return Carried(None, f"the prebuilt {path} {amiss}", amiss=True)
    return Carried(path, f"by {told['compiler']}")


def _digest_amiss(path: Path, digest: str) -> str:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"cannot be read ({error.strerror}): install the wheel again"
    return "" if found == digest else "is damaged (its digest differs): install the wheel again"


def _glibc_amiss(needed: Sequence[int]) -> str:
    have = glibc()
    if have is not None and have >= tuple(needed):
        return ""
    there = "another C library" if have is None else f"glibc {dotted(have)}"
    return f"needs glibc {dotted(needed)}, here is {there}"


def glibc() -> tuple[int, ...] | None:
    """Version of the C library of this process; None where it is another one than glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(int(part) for part in version.split(".")) if name == "glibc" else None
    except (ValueError, OSError):  # the name is not known, or the version is no numbers
        return None
