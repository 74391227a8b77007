"""Which configurations are run, in which order: pure arithmetic over flags and candidates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Pass = Literal["one by one", "together"]
"""First each variable alone against the base, then the best of each together."""


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """What differs from the base: (flag, value) pairs, in the order of the variables."""

    changes: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """For people, and what runs are told apart by."""
        return " ".join(f"{flag} {value}" for flag, value in self.changes) or "base"

    @property
    def words(self) -> tuple[str, ...]:
        """For a command line."""
        return tuple(word for change in self.changes for word in change)


BASE = Configuration()


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One flag. base: its value, or what the server chooses without it; values: the others."""

    flag: str
    base: str
    values: tuple[str, ...]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What every run is asked. trace: the file's name; digest: of its bytes. scaling: in words."""

    trace: str
    digest: str
    requests: int
    speed: float
    scaling: str
    prompt_tokens: int
    answer_tokens: int
    span_s: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides which runs are made. base: the words of the base's command line."""

    base: tuple[str, ...]
    model: str
    fingerprint_id: str
    load: Load
    variables: tuple[Variable, ...]
    repeats: int
    objective: str
    slo_ms: tuple[float | None, float | None] = (None, None)

    @property
    def hash(self) -> str:
        """Equal where the same runs would be made."""
        data = msgspec.json.encode(msgspec.to_builtins(self), order="sorted")
        return hashlib.sha256(data).hexdigest()[:12]


def one_by_one(variables: Sequence[Variable]) -> tuple[Configuration, ...]:
    """The base, then each other value of each variable alone."""
    alone = [Configuration(((v.flag, value),)) for v in variables for value in v.values]
    return (BASE, *alone)


def together(variables: Sequence[Variable], best: Mapping[str, str]) -> tuple[Configuration, ...]:
    """The base, the best of each variable alone, and all of them together where there are
    several; nothing where there is none. best: flag -> value."""
    found = tuple((v.flag, best[v.flag]) for v in variables if v.flag in best)
    if not found:
        return ()
    singles = tuple(Configuration((change,)) for change in found)
    return (BASE, *singles, Configuration(found)) if len(found) > 1 else (BASE, *singles)


def ordered(configurations: Sequence[Configuration], repeat: int) -> tuple[Configuration, ...]:
    """The order of one repeat: there and back again, so that what drifts meets all alike."""
    found = tuple(configurations)
    return found[::-1] if repeat % 2 else found


MOST_POWERS = 5


def powers(window: int, base: int) -> tuple[int, ...]:
    """The largest powers of two up to the window, at most MOST_POWERS, without the base's value."""
    found = [1 << exponent for exponent in range(window.bit_length())]
    return tuple(value for value in found[-MOST_POWERS:] if value != base)


def left_s(done_s: Sequence[float], runs: int) -> float | None:
    """Seconds that the rest of `runs` takes, if it goes on as it did; None before the first."""
    if not done_s:
        return None
    return sum(done_s) / len(done_s) * max(0, runs - len(done_s))
