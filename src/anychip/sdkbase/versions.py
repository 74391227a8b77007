"""Versions of a vendor's parts, each with where it was told: a file, a library's call, a tool."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.loader import load

CHILD_SECONDS, TOOL_SECONDS = 60.0, 30.0
VERSION_LINE = r"(?im)^\s*version\s*[:=]\s*(\S+)"


class ToldVersion(NamedTuple):
    """version: empty where none was told; whence then says why as well."""

    version: str
    whence: str


def told_by_file(folders: Iterable[Path], pattern: str = VERSION_LINE) -> ToldVersion:
    """By the first file `version` or `version.txt` in these folders that fits the pattern: its
    first group."""
    folders = tuple(folders)
    for file in (folder / name for folder in folders for name in ("version", "version.txt")):
        if os.path.isfile(file):
            said = re.search(pattern, file.read_text(encoding="utf-8", errors="replace"))
            if said is not None:
                return ToldVersion(said[1], str(file))
    return ToldVersion("", f"no version file in {', '.join(map(str, folders)) or 'any folder'}")


def told_by_calls(order: Sequence[Path], calls: Mapping[str, str]) -> dict[str, ToldVersion]:
    """By C functions of libraries that are loaded in this order in a child process.

    calls: name -> `function:numbers` (two uint32_t*), `function:text` (char*, unsigned size), with
    ` after FUNCTION` behind where another has to be called first. Each returns 0, or a status.
    """
    question = {"paths": [str(path) for path in order], "calls": dict(calls)}
    try:
        said = run_in_child(f"{__name__}:ask", question, CHILD_SECONDS)
    except ChildFailed as error:
        first = next(iter(calls))
        told = dict.fromkeys(calls, ToldVersion("", f"as {first}"))
        return told | {first: ToldVersion("", f"the process that calls {calls[first]}: {error}")}
    return {name: ToldVersion(*answer) for name, answer in said.items()}


def told_by_tool(command: Sequence[str], pattern: str) -> ToldVersion:
    """By what a program prints: the first group of the pattern. A tool that hangs is ended."""
    line = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return ToldVersion("", f"{line}: {error}")
    said = re.search(pattern, done.stdout)
    return ToldVersion(said[1], line) if said else ToldVersion("", f"{line} printed none")


def origins(told: Mapping[str, ToldVersion]) -> Finding:
    """One finding: each version with where it is from; unknown where one is not told."""
    text = "; ".join(f"{n} {t.version or 'not told'} ({t.whence})" for n, t in told.items())
    silent = ", ".join(name for name, t in told.items() if not t.version)
    if not silent:
        return Finding("origins", Verdict.GOOD, text)
    step = f"look at the driver and the version files: {silent} cannot be compared"
    return Finding("origins", Verdict.UNKNOWN, text, step)


def ask(question: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """In the child: name -> version and function, or nothing and why."""
    for path in question["paths"]:
        load(path)
    return {name: _ask_one(text) for name, text in question["calls"].items()}


def _ask_one(text: str) -> tuple[str, str]:
    library = ctypes.CDLL(None)
    call, _, first = text.partition(" after ")
    function, _, form = call.partition(":")
    lacking = [f for f in (first, function) if f and not hasattr(library, f)]
    if lacking:
        return "", f"{lacking[0]} is in no library"
    if first and (status := library[first]()):
        return "", f"{first} returned {status}"
    version, status = _texts(library[function]) if form == "text" else _numbers(library[function])
    return ("", f"{function} returned {status}") if status else (version, function)


def _numbers(function: Any) -> tuple[str, int]:
    major, minor = ctypes.c_uint32(), ctypes.c_uint32()
    status = function(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}", status


def _texts(function: Any) -> tuple[str, int]:
    text = ctypes.create_string_buffer(80)
    status = function(text, len(text))
    return text.value.decode(errors="replace"), status
