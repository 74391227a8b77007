"""What a scan comes to: its levels, the law behind them, and what keeps throughput from growing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from anychip.bench.load.bootstrap import Estimate
from anychip.bench.load.figures import Figures
from anychip.bench.saturation import Facts
from anychip.bench.scan_amounts import Composition
from anychip.bench.scan_law import LEAST_LEVELS, Law, fit

FLAT = 1.25
"""Throughput that twice the requests must multiply by, or it is said to flatten."""
NO_CAUSE = "not named: no figure reaches its limit"
NOT_KNOWN = "not known: no evidence from this server"


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One level. throughput: output tokens a second while every caller was busy. gain: to the
    level before, for each doubling. causes, texts, steps: what saturates, nothing in most levels;
    what that means; what to do about it."""

    concurrency: int
    figures: Figures
    throughput: Estimate
    gain: Estimate | None
    running: float | None
    composition: Composition | None
    facts: Facts
    causes: tuple[str, ...]
    texts: tuple[str, ...]
    steps: tuple[str, ...]


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A level in which the server went away; nothing of it is counted."""

    concurrency: int
    why: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A whole scan. flat: index of the first level that gained less than FLAT; None where each did.

    cause, text, step: what keeps it from growing there, or costs most at the last level. notes:
    what was not known, and why. lost: levels between, whose server went away and came back. broken:
    why the server took no more load, where it did not last.
    """

    model: str
    levels: tuple[Level, ...]
    law: Law | None
    flat: int | None
    cause: str
    text: str
    step: str
    notes: tuple[str, ...]
    lost: tuple[Lost, ...] = ()
    interrupted: bool = False
    broken: str = ""


def gain(before: Level, concurrency: int, throughput: Estimate) -> Estimate | None:
    """How much twice the requests multiplied the throughput by, from the level before to this.

    The interval takes the ends of both, so it is wide rather than narrow.
    """
    doublings = float(np.log2(concurrency / before.concurrency))
    was = before.throughput
    if was.low <= 0 or throughput.low <= 0:
        return None
    exact = throughput.value / was.value
    low, high = throughput.low / was.high, throughput.high / was.low
    return Estimate(*(float(value ** (1 / doublings)) for value in (exact, low, high)))


def found_of(model: str, levels: Sequence[Level], notes: Sequence[str]) -> Found:
    """What the levels come to."""
    gains = [None if level.gain is None else level.gain.value for level in levels]
    flat = next((i for i, value in enumerate(gains) if value is not None and value < FLAT), None)
    law, told = _law(levels)
    cause, text, step = _cause(levels[-1:] if flat is None else levels[flat:])
    return Found(
        model=model,
        levels=tuple(levels),
        law=law,
        flat=flat,
        cause=cause,
        text=text,
        step=step,
        notes=(*notes, *told),
    )


def _law(levels: Sequence[Level]) -> tuple[Law | None, list[str]]:
    """The fit, and what is to be said about it."""
    pairs = [(level.concurrency, level.throughput.value) for level in levels]
    if len(pairs) < LEAST_LEVELS:
        return None, [f"no fit: it needs {LEAST_LEVELS} levels, there are {len(pairs)}"]
    if not all(value > 0 for _, value in pairs):
        return None, ["no fit: a level got nothing done"]
    exact = ["the fit goes through three levels exactly, whatever they are"]
    return fit(pairs), exact if len(pairs) == LEAST_LEVELS else []


def _cause(levels: Sequence[Level]) -> tuple[str, str, str]:
    """Name, text and step of what saturates, at the first of these levels where anything does."""
    for level in levels:
        if level.causes:
            return level.causes[0], level.texts[0], level.steps[0]
    known = all(level.facts.chip is not None for level in levels)
    return (NO_CAUSE if known else NOT_KNOWN), "", ""
