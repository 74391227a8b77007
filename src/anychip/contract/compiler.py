"""The C++ compiler: which one there is, how it is run, and what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from anychip.contract.demangle import demangled
from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind

COMPILERS = ("g++", "c++", "clang++")
BUILD_TIMEOUT = 600.0
"""Seconds that one call of the compiler may take."""

_SAID = re.compile(r"(?:fatal )?error: .+|undefined reference to .+|cannot find .+")
"""Where a compiler or a linker says what is wrong."""
_REFERENCE = re.compile(r"undefined reference to [`']([^']+)'")


class NoCompiler(ChipError):
    """No C++ compiler was found: a chip may have another way, and says loudly that it takes it."""


def build_error(chip: str, text: str, kind: ErrorKind = ErrorKind.KERNEL) -> ChipError:
    """A failure of the build layer, in the contract's words."""
    return ChipError(ErrorFact(ChipLayer.BUILD, kind, False, text), chip=chip)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: where it is and the first line that it says about itself."""

    path: str
    version: str


def find_compiler(chip: str, wanted: str | None = None) -> Compiler:
    """The compiler asked for, else the first of g++, c++, clang++ on the path.

    Raises NoCompiler where there is none, or where it does not answer `--version`.
    """
    names = (wanted,) if wanted else COMPILERS
    path = next((p for p in map(shutil.which, names) if p), None)
    if path is None:
        text = f"no C++ compiler: looked for {', '.join(names)} on the path; install one (g++)"
        raise NoCompiler(ErrorFact(ChipLayer.BUILD, ErrorKind.UNSUPPORTED, False, text), chip=chip)
    try:
        facts = Path(path).stat()
        return Compiler(path, _version_of(path, facts.st_mtime_ns, facts.st_size))
    except (OSError, subprocess.SubprocessError) as error:
        fact = ErrorFact(ChipLayer.BUILD, ErrorKind.UNSUPPORTED, False, f"{path}: {error}")
        raise NoCompiler(fact, chip=chip) from error


@lru_cache(maxsize=8)
def _version_of(path: str, modified: int, size: int) -> str:
    """The first line of its `--version`: asked once, since a start wants to know it three times."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    if said.returncode != 0 or not said.stdout:
        raise subprocess.SubprocessError(f"--version ended with status {said.returncode}")
    return said.stdout.splitlines()[0]


def first_error(error: ChipError) -> str:
    """What the compiler or the linker says first, with C++ names spelled out."""
    said = _SAID.search(error.fact.text)
    line = said[0] if said else error.fact.text
    return demangled([line])[line]


def undefined_in(error: ChipError) -> tuple[str, ...]:
    """Symbols that the linker did not find, as it calls them."""
    return tuple(dict.fromkeys(_REFERENCE.findall(error.fact.text)))


def compiler_version(chip: str) -> str:
    """What the compiler says about itself, or that there is none: nobody may need one."""
    try:
        return find_compiler(chip).version
    except NoCompiler:
        return "none found"


def run_compiler(chip: str, command: list[str]) -> None:
    """Run it to its end. Raises ChipError (build) with what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise build_error(chip, f"no answer in {BUILD_TIMEOUT:g} s: {' '.join(command)}") from error
    except OSError as error:
        raise build_error(chip, f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = _shortened(done.stderr.strip()) or "nothing on standard error"
        text = f"{' '.join(command)} ended with status {done.returncode}: {said}"
        raise build_error(chip, text)


def _shortened(text: str) -> str:
    """Its beginning, where the first error is, and its end."""
    return text if len(text) <= 4000 else f"{text[:2000]} [...] {text[-2000:]}"
