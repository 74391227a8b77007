"""A compiler cache that any chip may use: C++ sources to one shared library, built once.

The key of a library is SHA-256 over the sources and the headers beside them, the compiler's path
and version, the flags, the processor and what else the order names. Two processes that want the
same library build it once; an entry appears by an atomic rename, whole or not at all. The digest
of a library lies beside it, as `sha256sum` writes it: one that was cut or changed since kills the
process that loads it. What was left out of one, and why, lies beside it too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from anychip.contract.compiler import (
    Compiler,
    NoCompiler,
    build_error,
    compiler_version,
    find_compiler,
    first_error,
    run_compiler,
    undefined_in,
)
from anychip.contract.errors import ChipError, ErrorKind

__all__ = [
    "BuildOrder",
    "Compiler",
    "NoCompiler",
    "build_error",
    "cache_key",
    "cached_library",
    "compile_library",
    "compiler_version",
    "find_compiler",
    "first_error",
    "is_intact",
    "left_out",
    "link_arguments",
    "processor",
    "refuse_shared",
    "undefined_in",
]

HEADERS = ("*.h", "*.hpp")
JOBS = 4
"""Files that are compiled at a time."""
TURNS = 5
"""How often one library is compiled where its sources change meanwhile, before that is an error."""


def _folder_error(chip: str, folder: Path, problem: str) -> ChipError:
    """The folder of the libraries is the user's choice, so another one is the way out."""
    text = f"the build folder {folder} {problem}: name another with --build-dir or --cache-dir"
    return build_error(chip, text, ErrorKind.INVALID)


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
    """What to build. chip: whose errors these are. name: stem of the library's file.

    optional: further sources; one that does not compile, or does not link with the others, is
    left out and told, with this way_out. link: arguments of the linker, behind the objects.
    depends: texts that stand for whatever else decides how the library turns out, as the versions
    of what it is linked with.
    """

    chip: str
    name: str
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    optional: tuple[Path, ...] = ()
    way_out: str = ""
    link: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


def cached_library(order: BuildOrder, *, cache_dir: Path, compiler: Compiler) -> Path:
    """Where the library of this order lies or would lie."""
    flags = (*order.flags, *order.link, *order.depends)
    key = cache_key((*order.sources, *order.optional), flags, compiler)
    return cache_dir / f"{order.name}-{key}.so"


def left_out(library: Path) -> Mapping[str, str]:
    """Optional sources that are not in a built library -> why not."""
    try:
        found: dict[str, str] = json.loads(_left_out_of(library).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def is_intact(library: Path) -> bool:
    """Whether it is there and is what was built. One that cannot be read is not."""
    try:
        kept = _digest_of(library).read_text(encoding="ascii").split()
        return bool(kept) and kept[0] == _digest(library)
    except (OSError, UnicodeDecodeError):  # whoever builds it again meets the reason
        return False


def _digest_of(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _left_out_of(library: Path) -> Path:
    return library.with_name(f"{library.name}.left_out.json")


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def link_arguments(libraries: Sequence[Path]) -> tuple[str, ...]:
    """Link with these, found by name alone when they are loaded, and leave no symbol undefined."""
    folders = dict.fromkeys(str(library.parent) for library in libraries)
    searched = [
        word for f in folders for word in ("-L", f, "-Xlinker", "-rpath-link", "-Xlinker", f)
    ]
    names = (f"-l:{library.name}" for library in libraries)
    whole = ("-Xlinker", "-z", "-Xlinker", "defs", "-Xlinker", "--no-demangle")
    return (*searched, *names, *whole)


def compile_library(
    order: BuildOrder,
    *,
    cache_dir: Path,
    compiler: str | None = None,
    progress: Callable[[str], None],
) -> Path:
    """The shared library of these sources, from the cache or built now.

    progress: called with one line of text now and then; not at all on a hit. A library that is
    damaged is built again, and so is one whose sources changed while they were compiled (TURNS
    times): it may be a mixture, which no key stands for. Raises NoCompiler, or ChipError (build)
    with what the compiler said (kernel failure), or naming a folder that cannot be used (invalid
    argument).
    """
    found = find_compiler(order.chip, compiler)
    for _ in range(TURNS):
        target = cached_library(order, cache_dir=cache_dir, compiler=found)
        if is_intact(target):
            refuse_shared(order.chip, target.parent)
            return target
        with _locked(order.chip, target):
            if not is_intact(target) and target.exists():
                progress(f"{target} is damaged (its digest differs or is missing): building again")
            if is_intact(target) or _build(order, found, target, progress):
                return target
        progress(f"sources of {order.name} changed while they were compiled: compiling again")
    folders = ", ".join(sorted({str(source.parent) for source in order.sources}))
    text = f"sources in {folders} changed in each of {TURNS} turns of compiling {order.name}: "
    raise build_error(order.chip, f"{text}start again when nothing writes there any more")


def refuse_shared(chip: str, folder: Path) -> None:
    """Code is loaded from here: nobody else may be able to put some. Raises ChipError, OSError."""
    facts = folder.stat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        problem = "belongs to another user or others may write to it; chmod 700 it, or"
        raise _folder_error(chip, folder, problem)


@contextmanager
def _locked(chip: str, target: Path) -> Iterator[None]:
    """One builder at a time for one library, across processes."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_shared(chip, target.parent)
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
) -> bool:
    """Call it under the library's lock: a folder of an earlier build was left by a killed one.

    False, and nothing is kept, where the sources are no longer those that the target stands for.
    """
    prefix = f".build-{target.stem}-"
    try:
        for abandoned in target.parent.glob(f"{prefix}*"):
            shutil.rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as folder:
            bench = _Bench(order, compiler, Path(folder), progress)
            library = bench.library_for(target)
            if library is None:
                return False
            library.chmod(0o700)
            beside = {
                _digest_of(target): f"{_digest(library)}  {target.name}\n",
                **({_left_out_of(target): json.dumps(bench.left_out)} if order.optional else {}),
            }
            for path, text in beside.items():
                written = Path(folder) / path.name
                written.write_text(text, encoding="utf-8")
                written.replace(path)
            library.replace(target)
    except OSError as error:
        problem = f"is not writable ({error.strerror})"
        raise _folder_error(order.chip, target.parent, problem) from error
    return True


@dataclass
class _Bench:
    """Where one library is made. left_out: optional sources that are not in it -> why not."""

    order: BuildOrder
    compiler: Compiler
    folder: Path
    progress: Callable[[str], None]
    left_out: dict[str, str] = field(default_factory=dict)
    _done: Iterator[int] = field(default_factory=partial(count, 1))

    def library_for(self, target: Path) -> Path | None:
        """The library, or None where the sources changed meanwhile: errors may be a mixture's too.

        Raises ChipError, as `library` does.
        """
        try:
            library = self.library()
        except ChipError:
            if self._stands_for(target):
                raise
            return None
        return library if self._stands_for(target) else None

    def _stands_for(self, target: Path) -> bool:
        """Whether the sources, as they lie there now, are still those of this target."""
        try:
            now = cached_library(self.order, cache_dir=target.parent, compiler=self.compiler)
        except FileNotFoundError:  # removed or renamed meanwhile: the next turn names it
            return False
        return now == target

    def library(self) -> Path:
        """Compile all and link them. Raises ChipError, not for an optional source."""
        order = self.order
        sources = (*order.sources, *order.optional)
        self.progress(f"compiling {order.name}: {len(sources)} files with {self.compiler.version}")
        with ThreadPoolExecutor(max_workers=JOBS) as pool:
            made = dict(zip(sources, pool.map(self._object, sources), strict=True))
        objects = {source: made[source] for source in order.sources}
        extra = {s: made[s] for s in order.optional if s.name not in self.left_out}
        library = self._linked(objects, extra)
        self.progress(f"linked {order.name}")
        return library

    def _object(self, source: Path) -> Path:
        target = self.folder / f"{source.name}.o"
        command = [self.compiler.path, *self.order.flags, "-fPIC", "-c", str(source)]
        try:
            run_compiler(self.order.chip, [*command, "-o", str(target)])
        except ChipError as error:
            self._leave_out(source, error)
        else:
            done = f"{next(self._done)} of {len((*self.order.sources, *self.order.optional))}"
            self.progress(f"compiled {self.order.name}: {source.name} ({done})")
        return target

    def _linked(self, objects: Mapping[Path, Path], extra: dict[Path, Path]) -> Path:
        """All of it; where that fails, without each optional object that is at fault alone."""
        if extra:
            try:
                return self._link([*objects.values(), *extra.values()])
            except ChipError:
                self._link([*objects.values()])  # not the fault of an optional one: told here
        for source, made in extra.items():
            try:
                self._link([*objects.values(), made])
            except ChipError as error:
                self._leave_out(source, error)
        kept = [made for source, made in extra.items() if source.name not in self.left_out]
        return self._link([*objects.values(), *kept])

    def _link(self, objects: Sequence[Path]) -> Path:
        library = self.folder / "library.so"
        command = [self.compiler.path, *self.order.flags, "-shared", "-pthread", "-o", str(library)]
        run_compiler(self.order.chip, [*command, *map(str, objects), *self.order.link])
        return library

    def _leave_out(self, source: Path, error: ChipError) -> None:
        """Raises the error where the source is not optional."""
        if source not in self.order.optional:
            raise error
        self.left_out[source.name] = first_error(error)
        self.progress(f"left out of {self.order.name}: {source.name}: {self.left_out[source.name]}")
