"""A compiler cache that any chip may use: C++ sources to one shared library, built once.

The key of a library is SHA-256 over the sources and the headers beside them, the compiler's path
and version, the flags and the processor. Two processes that want the same library build it once;
an entry appears by an atomic rename, whole or not at all. The digest of a library lies beside it,
as `sha256sum` writes it: one that was cut or changed since kills the process that loads it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind

COMPILERS = ("g++", "c++", "clang++")
HEADERS = ("*.h", "*.hpp")
BUILD_TIMEOUT = 600.0
"""Seconds that one call of the compiler may take."""
JOBS = 4
"""Files that are compiled at a time."""


class NoCompiler(ChipError):
    """No C++ compiler was found: a chip may have another way, and says loudly that it takes it."""


def build_error(chip: str, text: str, kind: ErrorKind = ErrorKind.KERNEL) -> ChipError:
    """A failure of the build layer, in the contract's words."""
    return ChipError(ErrorFact(ChipLayer.BUILD, kind, False, text), chip=chip)


def _folder_error(chip: str, folder: Path, problem: str) -> ChipError:
    """The folder of the libraries is the user's choice, so another one is the way out."""
    text = f"the build folder {folder} {problem}: name another with --build-dir or --cache-dir"
    return build_error(chip, text, ErrorKind.INVALID)


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
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        fact = ErrorFact(ChipLayer.BUILD, ErrorKind.UNSUPPORTED, False, f"{path}: {error}")
        raise NoCompiler(fact, chip=chip) from error
    if said.returncode != 0 or not said.stdout:
        text = f"{path} --version ended with status {said.returncode}"
        raise NoCompiler(ErrorFact(ChipLayer.BUILD, ErrorKind.UNSUPPORTED, False, text), chip=chip)
    return Compiler(path, said.stdout.splitlines()[0])


def processor() -> str:
    """What decides which instructions run: architecture, model and feature flags."""
    wanted = ("model name", "flags", "Features")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in wanted:
            found.setdefault(name.strip(), " ".join(sorted(value.split())))
    return "\n".join([platform.machine(), *(f"{k}: {v}" for k, v in sorted(found.items()))])


def cache_key(sources: Sequence[Path], flags: Sequence[str], compiler: Compiler) -> str:
    """24 hex digits that change with anything that could change the library."""
    headers = {h for s in sources for pattern in HEADERS for h in s.parent.glob(pattern)}
    digest = hashlib.sha256()
    for file in (*sources, *sorted(headers)):
        digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    for text in (compiler.path, compiler.version, *flags, processor()):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class BuildOrder:
    """What to build. chip: whose errors these are. name: stem of the library's file."""

    chip: str
    name: str
    sources: tuple[Path, ...]
    flags: tuple[str, ...]


def cached_library(order: BuildOrder, *, cache_dir: Path, compiler: Compiler) -> Path:
    """Where the library of this order lies or would lie."""
    return cache_dir / f"{order.name}-{cache_key(order.sources, order.flags, compiler)}.so"


def is_intact(library: Path) -> bool:
    """Whether it is there and is what was built. One that cannot be read is not."""
    try:
        kept = _digest_of(library).read_text(encoding="ascii").split()
        return bool(kept) and kept[0] == _digest(library)
    except (OSError, UnicodeDecodeError):  # whoever builds it again meets the reason
        return False


def _digest_of(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def compile_library(
    order: BuildOrder,
    *,
    cache_dir: Path,
    compiler: str | None = None,
    progress: Callable[[str], None],
) -> Path:
    """The shared library of these sources, from the cache or built now.

    progress: called with one line of text now and then; not at all on a hit. A library that is
    damaged is built again. Raises NoCompiler, or ChipError (build) with what the compiler said
    (kernel failure), or naming a folder that cannot be used (invalid argument).
    """
    found = find_compiler(order.chip, compiler)
    target = cached_library(order, cache_dir=cache_dir, compiler=found)
    if is_intact(target):
        _refuse_shared(order.chip, target.parent)
        return target
    with _locked(order.chip, target):
        if not is_intact(target):
            if target.exists():
                progress(f"{target} is damaged (its digest differs or is missing): building again")
            _build(order, found, target, progress)
    return target


def _refuse_shared(chip: str, folder: Path) -> None:
    """Code is loaded from here: nobody else may be able to put some."""
    facts = folder.stat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        problem = "belongs to another user or others may write to it; chmod 700 it, or"
        raise _folder_error(chip, folder, problem)


@contextmanager
def _locked(chip: str, target: Path) -> Iterator[None]:
    """One builder at a time for one library, across processes."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_shared(chip, target.parent)
        lock = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        problem = f"is not writable ({error.strerror})"
        raise _folder_error(chip, target.parent, problem) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _build(
    order: BuildOrder, compiler: Compiler, target: Path, progress: Callable[[str], None]
) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
            library = _objects_to_library(order, compiler, Path(folder), progress)
            library.chmod(0o700)
            digest = library.with_suffix(".sha256")
            digest.write_text(f"{_digest(library)}  {target.name}\n", encoding="ascii")
            digest.replace(_digest_of(target))
            library.replace(target)
    except OSError as error:
        problem = f"is not writable ({error.strerror})"
        raise _folder_error(order.chip, target.parent, problem) from error


def _objects_to_library(
    order: BuildOrder, compiler: Compiler, folder: Path, progress: Callable[[str], None]
) -> Path:
    objects = [folder / f"{number}.o" for number in range(len(order.sources))]
    progress(f"compiling {order.name}: {len(objects)} files with {compiler.version}")

    def compile_one(number: int) -> None:
        source, target = order.sources[number], objects[number]
        command = [compiler.path, *order.flags, "-fPIC", "-c", str(source), "-o", str(target)]
        _run(order.chip, command)
        progress(f"compiled {order.name}: {source.name}")

    with ThreadPoolExecutor(max_workers=JOBS) as pool:
        list(pool.map(compile_one, range(len(objects))))
    library = folder / "library.so"
    linked = [compiler.path, *order.flags, "-shared", "-pthread", "-o", str(library)]
    _run(order.chip, [*linked, *map(str, objects)])
    progress(f"linked {order.name}")
    return library


def _run(chip: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise build_error(chip, f"no answer in {BUILD_TIMEOUT:g} s: {' '.join(command)}") from error
    except OSError as error:
        raise build_error(chip, f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.strip()[-4000:] or "nothing on standard error"
        text = f"{' '.join(command)} ended with status {done.returncode}: {said}"
        raise build_error(chip, text)
