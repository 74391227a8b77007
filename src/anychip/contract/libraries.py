"""What the loader makes of a chip's libraries: all there, every symbol, each from one file.

`look` loads them in a child process, in the order in which they need each other, with every symbol
resolved at once: what a chip does when it opens. Where that fails, `ldd -r` tells why, and each
finding names the package that is to blame and the variable to set.
"""

from __future__ import annotations

import filecmp
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip.contract.build import Finding, Library, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.compile import first_error, undefined_in
from anychip.contract.demangle import demangled
from anychip.contract.errors import ChipError
from anychip.contract.loader import load_order, loader_path, needed, run_path, soname, stem

LOAD_SECONDS = 120.0
"""For the process that loads them all."""

LOAD_ALL = "anychip.contract.loader:load_all"
LDD_SECONDS = 60.0
MOST_SYMBOLS = 3
"""Undefined symbols that a finding spells out; the others are counted."""

_NOT_FOUND = re.compile(r"^\t(\S+) => not found$", re.M)
_UNDEFINED = re.compile(r"^(?:undefined symbol:|symbol) ([^\s,]+).*\t\((.+)\)$", re.M)
_LOADER_SAYS = re.compile(r"(\S.*): undefined symbol: ([^\s,]+)")
_VERSION = re.compile(r"version [`'](\S+)' not found \(required by (.+)\)$", re.M)


@dataclass(frozen=True)
class Search:
    """What is to be looked at.

    wanted: the libraries, a `path` in each that was found. folders: searched in order for what
    those need. known: further libraries, for the package and the variable of one that is needed.
    exporter: symbol -> name of the library that should have it, empty where nobody knows.
    called: symbols that the chip asks for by their names, which no library needs.
    """

    wanted: tuple[Library, ...]
    folders: tuple[Path, ...] = ()
    known: tuple[Library, ...] = ()
    exporter: Callable[[str], str] = lambda symbol: ""
    called: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[Path, ...]:
        """As `load_order` has them."""
        return load_order([Path(w.path) for w in self.wanted if w.path], self.folders)

    def entry(self, name: str) -> Library | None:
        """What is known of the library with this file name or soname."""
        entries = (*self.wanted, *self.known)
        return next((e for e in entries if stem(e.path or e.name) == stem(name)), None)


def look(search: Search, timeout: float = LOAD_SECONDS) -> tuple[Finding, ...]:
    """Findings: a good one for those that load, a bad one for each cause that keeps some from
    loading, for each that is not there, and for each that is loaded from two files.

    timeout: seconds for the process that loads them.
    """
    absent = tuple(_not_there(search, w) for w in search.wanted if not w.path)
    order = search.order
    try:
        seen = _load_in_child(order, search.called, timeout)
    except ChildFailed as error:
        return (*absent, _died(order, timeout, error))
    loaded = [p for p in order if str(p) not in seen["lacking"]]
    names = ", ".join(p.name for p in loaded) or "none"
    good = Finding("libraries", Verdict.GOOD, f"loaded, every symbol resolved: {names}")
    causes = (*_causes(search, order, seen["lacking"], timeout), *_uncalled(search, loaded, seen))
    told = {stem(cause.name) for cause in causes}  # with who needs it
    absent = tuple(finding for finding in absent if stem(finding.name) not in told)
    return (*absent, *((good,) if loaded else ()), *causes, *_twice(search, order, seen["twins"]))


def _load_in_child(order: Sequence[Path], symbols: Sequence[str], timeout: float) -> Any:
    question = {"paths": [str(p) for p in order], "symbols": list(symbols)}
    return run_in_child(LOAD_ALL, question, timeout)


def _died(order: Sequence[Path], timeout: float, error: ChildFailed) -> Finding:
    """Which library ends the process that loads it: the last of the first series that does."""
    for number in range(1, len(order) + 1):
        try:
            _load_in_child(order[:number], (), timeout)
        except ChildFailed as again:
            text = f"the process that loads {order[number - 1]}: {again}"
            return Finding(order[number - 1].name, Verdict.BAD, text, "install its package again")
    text = f"the process that loads the libraries: {error}; one by one they load"
    return Finding("libraries", Verdict.BAD, text, "run it again")


def _from(entry: Library | None) -> str:
    return f"package {entry.package}" if entry else "package not known here"


def _setting(entry: Library | None, name: str) -> str:
    variable = entry.variable if entry and entry.variable else "LD_LIBRARY_PATH"
    package = f"install {entry.package}" if entry else f"install the package of {name}"
    return f"{package}, or set {variable} to the folder that has {name}"


def _not_there(search: Search, lacking: Library) -> Finding:
    places = ", ".join(map(str, search.folders)) or "no folder"
    text = f"{lacking.name} ({_from(lacking)}) was not found; looked in {places}"
    return Finding(lacking.name, Verdict.BAD, text, _setting(lacking, lacking.name))


@dataclass
class _Said:
    """What `ldd -r` said of libraries that did not load: names, symbol -> who wants it, texts."""

    missing: dict[str, None]
    undefined: dict[str, str]
    versions: dict[str, str]
    trouble: str = ""


def _ask_ldd(paths: Iterable[str], folders: Sequence[Path]) -> _Said:
    """`ldd -r` of each, these folders before those of the shell."""
    said = _Said({}, {}, {})
    variable = ":".join(map(str, (*folders, *loader_path())))
    for path in paths:
        command = ["env", "LC_ALL=C", f"LD_LIBRARY_PATH={variable}", "ldd", "-r", path]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LDD_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            said.trouble = str(error)
            continue
        if done.returncode == 127:  # env found no ldd
            said.trouble = done.stderr.strip()
        text = done.stdout + done.stderr
        said.missing.update(dict.fromkeys(_NOT_FOUND.findall(text)))
        said.undefined.update(_UNDEFINED.findall(text))
        said.versions.update(_VERSION.findall(text))
    return said


def _causes(
    search: Search, order: Sequence[Path], lacking: Mapping[str, str], timeout: float
) -> tuple[Finding, ...]:
    """Why some did not load, each cause once."""
    if not lacking:
        return ()
    said = _ask_ldd(lacking, search.folders)
    for text in lacking.values():  # the loader names one, also where ldd cannot be asked
        said.undefined.update((symbol, who) for who, symbol in _LOADER_SAYS.findall(text))
    absent = set(_load_in_child(order, tuple(said.undefined), timeout)["absent"])
    undefined = {
        symbol: who
        for symbol, who in said.undefined.items()
        if symbol in absent and not _wants_one_of(said.missing, Path(who), search.folders)
    }
    found = [_missing(search, order, name) for name in said.missing]
    found += _undefined(search, undefined)
    found += [_older(name, who) for name, who in said.versions.items()]
    found += _unexplained(search, lacking, (*said.missing, *undefined, *said.versions))
    if said.trouble:
        text = f"further ones may follow: ldd -r cannot be asked ({said.trouble})"
        found.append(Finding("ldd", Verdict.UNKNOWN, text, "install ldd (package libc-bin)"))
    return tuple(found)


def _wants_one_of(missing: Mapping[str, None], path: Path, folders: Sequence[Path]) -> bool:
    """Whether it needs one of these, itself or through others: what it lacks may be in there."""
    return any(name in missing for p in load_order([path], folders) for name in needed(p))


def _unexplained(
    search: Search, lacking: Mapping[str, str], told: Sequence[str]
) -> Iterator[Finding]:
    """Libraries that do not load for a reason of their own: nothing told, no other of these."""
    for path, why in lacking.items():
        others = (Path(other).name for other in lacking if other != path)
        if not any(word in why for word in (*told, *others)):
            text = f"{path} does not load: {why}"
            yield Finding(Path(path).name, Verdict.BAD, text, _again(search, path))


def _again(search: Search, path: str) -> str:
    entry = search.entry(path)
    return f"install {entry.package} again" if entry else f"install the package of {path} again"


def _missing(search: Search, order: Sequence[Path], name: str) -> Finding:
    entry = search.entry(name)
    needers = ", ".join(str(p) for p in order if name in needed(p)) or "a library that they need"
    text = f"{name} ({_from(entry)}) was not found; it is needed by {needers}"
    return Finding(name, Verdict.BAD, text, _setting(entry, name))


def _undefined(search: Search, wanted: Mapping[str, str]) -> list[Finding]:
    """One finding for each library that wants symbols which no other has."""
    by_library: dict[str, list[str]] = defaultdict(list)
    for symbol, who in wanted.items():
        by_library[who].append(symbol)
    return [lacks(search, who, symbols) for who, symbols in by_library.items()]


def _uncalled(search: Search, loaded: Sequence[Path], seen: Any) -> tuple[Finding, ...]:
    """What the chip calls and no library has; of one that did not load, that is told already."""
    there = {"", *(stem(path.name) for path in loaded)}
    absent = [symbol for symbol in seen["absent"] if stem(search.exporter(symbol)) in there]
    return (lacks(search, "the chip", absent),) if absent else ()


def explained(search: Search, error: ChipError) -> str:
    """What the compiler or linker says first; of undefined symbols, what should have them."""
    symbols = undefined_in(error)
    if not symbols:
        return first_error(error)
    found = lacks(search, "the kernels", symbols)
    return f"{found.text}; {found.step}"


def lacks(search: Search, who: str, symbols: Sequence[str]) -> Finding:
    """The finding about symbols that a library, or what is to become one, does not find."""
    spelled = demangled(symbols[:MOST_SYMBOLS])
    told = [s if plain == s else f"{plain} ({s})" for s, plain in spelled.items()]
    more = f" and {len(symbols) - len(told)} more" if len(symbols) > len(told) else ""
    text = f"undefined symbol: {'; '.join(told)}{more}, wanted by {who}"
    owners = dict.fromkeys(name for s in symbols if (name := search.exporter(s)))
    if not owners:
        step = "its package and those that it needs do not go together: install what does"
        return Finding(Path(who).name, Verdict.BAD, text, step)
    homes = []
    for name in owners:
        entry = search.entry(name)
        path = entry.path if entry and entry.path else name
        homes.append(f"{path} ({_from(entry)}) should have it")
    entry = search.entry(next(iter(owners)))
    return Finding(
        Path(who).name, Verdict.BAD, f"{text}; {', '.join(homes)}", _replacement(entry, who)
    )


def _replacement(entry: Library | None, who: str) -> str:
    if entry is None:
        return f"install what goes together with {who}"
    where = f", or set {entry.variable} to where it is" if entry.variable else ""
    return f"install the {entry.package} that goes with {Path(who).name}{where}"


def _older(version: str, who: str) -> Finding:
    text = f"{who} wants {version}, which the system's own library does not have"
    step = f"use a system with {version}, or the build of the package that is for this one"
    return Finding(Path(who).name, Verdict.BAD, text, step)


def _twice(
    search: Search, order: Sequence[Path], loaded: Mapping[str, Sequence[str]]
) -> tuple[Finding, ...]:
    """Libraries that were loaded from two files, then those of which the shell has another."""
    taken = {p.resolve() for p in order}
    bad = []
    for name, files in loaded.items():
        strange = next((f for f in files if Path(f).resolve() not in taken), files[-1])
        source, step = _brought(search, order, Path(strange))
        package = _from(search.entry(strange))
        text = (
            f"loaded from two files: {' and '.join(files)} ({package}); {source} brings {strange}"
        )
        bad.append(Finding(name, Verdict.BAD, text, step))
    told = {stem(name) for name in loaded}
    others = (_another(search, p) for p in order if stem(p.name) not in told)
    return (*bad, *(finding for finding in others if finding is not None))


def _brought(search: Search, order: Sequence[Path], file: Path) -> tuple[str, str]:
    """What leads to a second file, and what to do about it."""
    folder = file.parent.resolve()
    for path in order:
        if folder in {p.resolve() for p in run_path(path)}:
            return f"the run path of {path}", f"remove {file}, or install a {path.name} without one"
    if folder in {p.resolve() for p in loader_path()}:
        return "LD_LIBRARY_PATH", f"take {file.parent} out of LD_LIBRARY_PATH"
    entry = search.entry(file.name)
    if entry and entry.variable:
        return f"{entry.variable}, or a folder beside it,", f"set {entry.variable} to one of them"
    return "the system's loader", f"uninstall the package of {file}"


def _another(search: Search, path: Path) -> Finding | None:
    """A different file of this name, to which LD_LIBRARY_PATH or another folder leads."""
    for folder in loader_path():
        other = folder / path.name
        if other.is_file() and not _same(other, path):
            package = _from(search.entry(path.name))
            text = f"{path} is taken ({package}); LD_LIBRARY_PATH also leads to another, {other}"
            step = f"keep one: take {folder} out of LD_LIBRARY_PATH"
            return Finding(path.name, Verdict.UNKNOWN, text, step)
    names = dict.fromkeys((path.name, *soname(path)))
    files = (folder / name for folder in search.folders for name in names)
    second = next((f for f in files if f.is_file() and not f.samefile(path)), None)
    return None if second is None else _second(search, path, second)


def _second(search: Search, path: Path, other: Path) -> Finding:
    """Two files in folders that are searched: today alike, they part with the next update."""
    which = "a copy" if _same(other, path) else "another"
    entry, step = search.entry(path.name), f"keep one: remove {other}"
    text = f"{path} is taken ({_from(entry)}); the search also leads to {which}, {other}"
    if entry and entry.variable:
        step += f", or set {entry.variable}, which decides, to the folder that is meant"
    return Finding(path.name, Verdict.UNKNOWN, text, step)


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)
