"""Levels of checks that end well, badly or not at all, to test the kit itself with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from anychip.conform.proof import Check, Level, Proof, failed, passed
from anychip.conform.subject import Subject

Run = Callable[[Subject], Proof]


def good(subject: Subject) -> Proof:
    return passed("it holds")


def bad(subject: Subject) -> Proof:
    return failed("it does not hold")


def die(subject: Subject) -> Proof:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("alive after SIGSEGV")


def leave(subject: Subject) -> Proof:
    os._exit(7)


def hang(subject: Subject) -> Proof:
    """Starts a process of its own first, as a vendor's library may."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["KIT_TEST_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
    return passed("never")


def shout(subject: Subject) -> Proof:
    """Writes to standard output as Python and as a C library do."""
    print("a line of Python")
    os.write(1, b"a line of C\n")
    return passed("it was loud")


def levels(**runs: Mapping[str, Run]) -> dict[Level, Callable[[Subject], list[Check]]]:
    """levels(memory={"M1": good, "M2! x": bad}): keys of checks, a gate with a !."""

    def lister(level: Level) -> Callable[[Subject], list[Check]]:
        found = [_check(level, key, run) for key, run in runs.get(level.value, {}).items()]
        return lambda subject: found

    return {level: lister(level) for level in Level}


def _check(level: Level, key: str, run: Run) -> Check:
    name, _, subject = key.partition(" ")
    return Check(name.rstrip("!"), level, run, subject, gate=name.endswith("!"))


CRASHING = levels(
    memory={"M1": good, "M2": die, "M3": leave, "M4": good, "M5": bad},
    operators={"O1 add": die, "O2 add": die, "O3 add": good, "O3 copy": good},
)
ALWAYS = levels(operators={f"O{n}": die for n in range(1, 9)}, models={"E1": good})
LOUD = levels(memory={"M1": shout})
HANGING = levels(memory={"M1": hang, "M2": good})
