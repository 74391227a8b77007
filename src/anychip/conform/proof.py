"""What the kit asks and what it answers: a check, and the proof that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from anychip.conform.subject import Subject


class Level(str, Enum):
    """A layer under test. In this order: each needs the ones before it."""

    REGISTRATION = "registration"
    BUILD = "build"
    MEMORY = "memory"
    EXECUTION = "execution"
    OPERATORS = "operators"
    MODELS = "models"


class Status(str, Enum):
    """A missing kernel is MISSING, never UNSUPPORTED: that is for what the contract lets a chip
    leave out and the chip says it leaves out. INCONCLUSIVE: the check could not have failed here.
    """

    PASS = "PASS"
    FAIL = "FAIL"
    UNSUPPORTED = "UNSUPPORTED"
    MISSING = "MISSING"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Proof:
    """What a check found. text: one line for a person, with the way out where there is one.

    figures: numbers for machines, by name with the unit in it where it has one.
    """

    status: Status
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


def passed(text: str, **figures: float) -> Proof:
    """What was seen to hold."""
    return Proof(Status.PASS, text, figures)


def failed(text: str, **figures: float) -> Proof:
    """What is wrong: the argument, value and limit."""
    return Proof(Status.FAIL, text, figures)


def unsupported(text: str) -> Proof:
    """Which declaration of the chip says so."""
    return Proof(Status.UNSUPPORTED, text)


def missing(text: str) -> Proof:
    """What a chip must bring and this one does not."""
    return Proof(Status.MISSING, text)


def inconclusive(text: str) -> Proof:
    """Why nothing can be said, and what would change that."""
    return Proof(Status.INCONCLUSIVE, text)


@dataclass(frozen=True)
class Check:
    """One check of one subject. id: an id of `index.py`. subject: an operator, say; may be empty.

    gate: where it fails, the levels behind it cannot be judged.
    """

    id: str
    level: Level
    run: Callable[[Subject], Proof]
    subject: str = ""
    gate: bool = False

    @property
    def key(self) -> str:
        """Unique in a kit, and the same for the same chip in every run."""
        return f"{self.id} {self.subject}".rstrip()


def prove(check: Check, subject: Subject) -> Proof:
    """Run one check. Whatever it raises is a failure that is told; the device is then opened anew
    for the next check."""
    try:
        return check.run(subject)
    except Exception as error:  # noqa: BLE001 - a chip's code may raise anything; it is told
        return failed(f"{told(error)}{_reopened(subject)}")


def _reopened(subject: Subject) -> str:
    """Nothing, or what went wrong when a broken device was closed."""
    try:
        subject.reopen()
    except Exception as error:  # noqa: BLE001 - as above
        return f"; then, when the device was closed, {told(error)}"
    return ""


def told(error: Exception) -> str:
    """Class and text. A vendor's text may hold bytes that are no UTF-8: shown as escapes."""
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace").decode()
