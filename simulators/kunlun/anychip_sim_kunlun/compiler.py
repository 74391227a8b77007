"""The C++ compiler: which one, with which flags, and how it is called."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anychip_sim_kunlun.refusal import BuildRefused

NAMES = ("g++", "clang++")
FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-march=native", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"),
)
WAY_OUT = "install one: apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora, CentOS)"


@dataclass(frozen=True)
class Compiler:
    """Where it is, and what tells its output from that of another compiler or processor."""

    path: str
    version: str
    identity: str


def find_compiler() -> Compiler:
    """The first of g++ and clang++ on the path. Raises BuildRefused where there is none."""
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        raise BuildRefused(f"no C++ compiler: looked for {' and '.join(NAMES)}; {WAY_OUT}")
    version = run([path, "--version"]).splitlines()[0]
    # What -march=native stands for on this processor.
    meaning = run([path, "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"])
    text = "\n".join((path, version, meaning))
    return Compiler(path, version, hashlib.sha256(text.encode()).hexdigest())


def run(command: Sequence[str], folder: Path | None = None) -> str:
    """Standard output of a tool. Raises BuildRefused with what it said where it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    except OSError as error:
        raise BuildRefused(f"{command[0]} cannot be run: {error}; {WAY_OUT}") from error
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip()
        line = " ".join(command)
        raise BuildRefused(f"this failed with status {ended.returncode}:\n{line}\n{said}")
    return ended.stdout
