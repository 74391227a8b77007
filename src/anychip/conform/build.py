"""Proof of the build layer: what is needed loads, versions go together, kernels come once."""

from __future__ import annotations

import ctypes.util
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anychip.conform.expect import Broken, expect, judged
from anychip.conform.proof import Check, Level, Proof, inconclusive, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.build import Build, Finding, Library, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.layer import empty_slots
from anychip.contract.loader import load, mapped_files, twins

LOAD_SECONDS = 120.0


def checks(subject: Subject) -> list[Check]:
    """B1, B2, B3."""
    level = Level.BUILD
    return [
        Check("B1", level, _libraries),
        Check("B2", level, _versions),
        Check("B3", level, _compile),
    ]


@judged
def _libraries(subject: Subject) -> Proof:
    build = subject.chip.build
    needs = build.requires()
    if not needs:
        return passed("nothing required")
    found = _loaded([need for need in needs if not need.header])
    unseen = _unseen_headers([need for need in needs if need.header], build.check())
    if unseen:
        text = f"headers that nothing looks for: {', '.join(unseen)}"
        return inconclusive(f"{text}; let build.check() have a finding of that name")
    return passed("; ".join(f"{name}: {how}" for name, how in found.items()) or "headers alone")


def _loaded(needs: Sequence[Library]) -> Mapping[str, str]:
    """What each need was found as, all in one process. Raises Broken."""
    packages = {need.name: need.package for need in needs}
    try:
        question = {need.name: need.path for need in needs}
        seen = run_in_child(f"{__name__}:load_all", question, LOAD_SECONDS)
    except ChildFailed as error:
        text = f"the process that loads {', '.join(packages)}: {error}"
        raise Broken(text) from error
    lacking = [f"{n}: {why} (from {packages[n]})" for n, why in seen["lacking"].items()]
    expect(not lacking, "; ".join(lacking))
    twins = [f"{name}: {' and '.join(files)}" for name, files in seen["twins"].items()]
    expect(not twins, f"loaded from two files, keep one of them: {'; '.join(twins)}")
    found: Mapping[str, str] = seen["found"]
    return found


def _unseen_headers(headers: Sequence[Library], findings: Sequence[Finding]) -> list[str]:
    """Headers about which the chip's own look says nothing. Raises Broken where one is bad."""
    unseen = []
    for header in headers:
        said = [f for f in findings if header.name in f"{f.name} {f.text}"]
        bad = [f for f in said if f.verdict is Verdict.BAD]
        expect(not bad, f"header {header.name} (from {header.package}): {_lines(bad)}")
        if not any(f.verdict is Verdict.GOOD for f in said):
            unseen.append(header.name)
    return unseen


def load_all(paths: Mapping[str, str]) -> dict[str, Any]:
    """In a child: load everything; what it was found as, why not, and what came twice.

    paths: name -> where it is, empty where it is found by its name.
    """
    before = mapped_files()
    found, lacking = {}, {}
    for name, path in paths.items():
        try:
            found[name] = _load_file(path) if path else _load(name.split(" or "))
        except (OSError, ImportError) as error:
            lacking[name] = str(error)
    return {"found": found, "lacking": lacking, "twins": twins(before, mapped_files())}


def _load(choices: Sequence[str]) -> str:
    """The first of some programs, Python modules or shared libraries that is there.

    Raises OSError, ImportError.
    """
    for name in choices:
        program = shutil.which(name)
        if program is not None:
            return f"program {program}"
        if name.isidentifier() and find_spec(name) is not None:
            import_module(name)
            return "Python module"
    files = [file for name in choices if (file := _library_file(name))]
    if not files:
        raise OSError("neither a program, nor a Python module, nor a library of that name")
    return _load_file(files[0])


def _load_file(path: str) -> str:
    load(path)  # every symbol is resolved at once
    return f"library {path}"


def _library_file(name: str) -> str | None:
    """What the loader is given: a file's name or path as it is, a bare name where it is found."""
    return name if "/" in name or ".so" in name else ctypes.util.find_library(name)


@judged
def _versions(subject: Subject) -> Proof:
    build = subject.chip.build
    versions, findings = build.versions(), build.check()
    if not versions:
        empty = not build.requires() and "compile" in empty_slots(type(build))
        expect(empty, "versions() is empty, although there is something to build")
        return passed("nothing to build, no version to tell")
    blank = [n for n, v in versions.items() if not isinstance(v, str) or not v]
    expect(not blank, f"versions without a text: {', '.join(blank)}")
    bad = [f for f in findings if f.verdict is Verdict.BAD]
    expect(not bad, _lines(bad))
    same = build.versions() == versions and build.check() == findings
    expect(same, "versions() or check() differ when asked a second time")
    unknown = [f for f in findings if f.verdict is Verdict.UNKNOWN]
    notes = [_matched(build, versions), _lines(unknown) and f"unknown: {_lines(unknown)}"]
    told = ", ".join(f"{n} {v}" for n, v in versions.items())
    return passed("; ".join([told, *filter(None, notes)]))


def _lines(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{f.name}: {f.text}" + (f" ({f.step})" if f.step else "") for f in findings)


def _matched(build: Build, versions: Mapping[str, str]) -> str:
    """What the chip's own matrix says of these versions. Raises Broken where it says bad."""
    if "matrix" in empty_slots(type(build)):
        return ""
    rows = [row for row in build.matrix() if row.fits(versions)]
    for row in rows:
        what = ", ".join(f"{n} {v}" for n, v in row.versions.items())
        expect(row.verdict is not Verdict.BAD, f"known not to work: {what} ({row.source})")
    good = [row.source for row in rows if row.verdict is Verdict.GOOD]
    return f"known to work ({'; '.join(good)})" if good else "no row of the matrix is about these"


@judged
def _compile(subject: Subject) -> Proof:
    build = subject.chip.build
    if "compile" in empty_slots(type(build)):
        return unsupported("build.compile is an empty slot")
    try:
        path = Path(build.compile())
    except ChipError as error:
        if error.fact.kind is not ErrorKind.UNSUPPORTED:
            raise
        return unsupported(str(error))
    expect(path.exists(), f"compile() says {path}, which does not exist")
    built = path.stat().st_mtime_ns
    again = Path(build.compile())
    expect(again == path, f"a second compile() says {again}, the first said {path}")
    expect(path.stat().st_mtime_ns == built, f"a second compile() built {path} again")
    return passed(f"{path}; the second time from the cache")
