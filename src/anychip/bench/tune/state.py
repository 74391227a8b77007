"""What was measured so far, in a file that a killed process leaves readable: a line a run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from .changed import changed
from .judge import Series
from .measure import Measured
from .plan import Configuration, Pass, Plan

FORMAT, VERSION = "anychip-tune-runs", 1
NAME = "runs.jsonl"


class StateError(ValueError):
    """The folder cannot be used as asked; the text says why, and the way out."""


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    hash: str
    plan: Plan


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One run. at: unix time of its end; took_s: with the start of its server. measured: None where
    it could not run, broken says why."""

    stage: Pass
    repeat: int
    configuration: Configuration
    at: float
    took_s: float
    measured: Measured | None = None
    broken: str = ""

    @property
    def key(self) -> tuple[Pass, int, Configuration]:
        """A run is made once."""
        return self.stage, self.repeat, self.configuration


def check_folder(folder: Path, *, resume: bool) -> None:
    """Make the folder. StateError where it cannot be written to, or has runs and they are not to
    be gone on with."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"--output: {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise StateError(f"--output: {folder} cannot be written to")
    if (folder / NAME).exists() and not resume:
        raise StateError(
            f"--output: {folder} has runs already; go on with --resume, or name another folder"
        )


def begun_plan(folder: Path) -> Plan | None:
    """Of the runs in a folder; None where it has none that can be read."""
    try:
        with (folder / NAME).open("rb") as file:
            return msgspec.json.decode(file.readline(), type=_Header).plan
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


class Runs:
    """The runs of one plan in a folder. Use it as a context manager.

    resume: go on with what the folder has. StateError where it has runs and that was not asked
    for, or they are of another plan.
    """

    def __init__(self, folder: Path, plan: Plan, *, resume: bool) -> None:
        self.done: list[Done] = []
        self.folder = folder
        self._path = folder / NAME
        check_folder(folder, resume=resume)
        if self._path.exists():
            size = self._read(plan)
            self._file: IO[bytes] = self._path.open("r+b")
            self._file.truncate(size)
            self._file.seek(size)
        else:
            self._file = self._path.open("xb")
            self._write(_Header(format=FORMAT, version=VERSION, hash=plan.hash, plan=plan))

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _read(self, plan: Plan) -> int:
        """Take in what is whole; its bytes. A torn last line is left out."""
        data = self._path.read_bytes()
        size = data.rfind(b"\n") + 1
        lines = data[:size].splitlines()
        try:
            header = msgspec.json.decode(lines[0] if lines else b"", type=_Header)
            self.done = [msgspec.json.decode(line, type=Done) for line in lines[1:]]
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise StateError(f"--resume: {self._path} holds no runs of a tune: {error}") from error
        if (header.format, header.version) != (FORMAT, VERSION):
            raise StateError(
                f"--resume: {self._path} is {header.format} of version {header.version}; this"
                f" AnyChip goes on with version {VERSION}; name another --output"
            )
        if header.hash != plan.hash:
            differ = "; ".join(changed(header.plan, plan)) or "its form is another one"
            raise StateError(
                f"--resume: {self._path} was begun with other settings ({differ}); give them as"
                " they were then, or name another --output"
            )
        return size

    def find(self, stage: Pass, repeat: int, configuration: Configuration) -> Done | None:
        """A run that was made."""
        key = stage, repeat, configuration
        return next((done for done in self.done if done.key == key), None)

    def add(self, done: Done) -> None:
        """Keep a run: it is on the disk when this returns."""
        self._write(done)
        self.done.append(done)

    def _write(self, line: Any) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def broken(self, configuration: Configuration) -> str:
        """Why the configuration cannot run; empty where nothing is known against it."""
        reasons = (d.broken for d in self.done if d.configuration == configuration and d.broken)
        return next(reasons, "")

    def series(self, stage: Pass, configurations: Sequence[Configuration]) -> list[Series]:
        """Each configuration's values of the repeats that all (but the broken ones) have."""
        runs = {d.key: d.measured for d in self.done if d.measured is not None}
        sound = [one for one in configurations if not self.broken(one)]
        repeats = sorted({repeat for at, repeat, _ in runs if at == stage})
        whole = [r for r in repeats if all((stage, r, one) in runs for one in sound)]
        found = []
        for one in configurations:
            if reason := self.broken(one):
                found.append(Series(configuration=one, broken=reason))
            elif whole:
                found.append(_series(one, [runs[stage, repeat, one] for repeat in whole]))
        return found


def _series(configuration: Configuration, runs: Sequence[Measured]) -> Series:
    figures = [run.figures() for run in runs]
    names = [name for name in figures[0] if all(name in each for each in figures)]
    return Series(
        configuration=configuration,
        values={name: tuple(each[name] for each in figures) for name in names},
        failed=sum(run.failed for run in runs),
    )


def now() -> float:
    """Unix time."""
    return time.time()
