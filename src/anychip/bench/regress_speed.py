"""How fast a case runs: time to the first token, time per token, throughput, with intervals."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anychip.engine.loaded import Answer

LEAST_SECONDS = 0.05
"""A case is timed for at least this long where its speed is judged."""

CONFIDENCE = 0.95
"""How sure an interval is, with as many runs as that takes; fewer give least and most."""


class Spread(NamedTuple):
    """Of several runs: the median, and the interval that holds the true one."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """By order statistics: the n values are independent, and nothing else is assumed."""
        ordered, count = sorted(values), len(values)
        outside = 1  # values beyond each end of the interval, itself included
        while _misses(count, outside + 1) <= 1 - CONFIDENCE:
            outside += 1
        return cls(statistics.median(ordered), ordered[outside - 1], ordered[count - outside])

    def rounded(self) -> Spread:
        """More digits are noise."""
        return Spread(*(float(f"{value:.3g}") for value in self))


def _misses(count: int, outside: int) -> float:
    """How likely the median lies beyond an interval from the value `outside` from each end on."""
    if 2 * outside > count:
        return 1.0
    return float(2 * sum(math.comb(count, k) for k in range(outside)) / 2**count)


@dataclass(frozen=True)
class Speeds:
    """ttft, tpot: milliseconds to the first token and for each one after it, mean of the requests;
    tpot None where there is one token. throughput: tokens of prompts and answers a second."""

    ttft: Spread
    tpot: Spread | None
    throughput: Spread

    def better(self, other: Speeds) -> Speeds:
        """Each figure from the run whose good end is better: others use the machine as well."""
        tpot = self.tpot
        if tpot is not None and other.tpot is not None:
            tpot = min(tpot, other.tpot, key=lambda spread: spread.low)
        return Speeds(
            min(self.ttft, other.ttft, key=lambda spread: spread.low),
            tpot,
            max(self.throughput, other.throughput, key=lambda spread: spread.high),
        )

    def rounded(self) -> Speeds:
        """As they are stored."""
        tpot = None if self.tpot is None else self.tpot.rounded()
        return Speeds(self.ttft.rounded(), tpot, self.throughput.rounded())


@dataclass(frozen=True)
class Timing:
    """repeats: runs at least; 0: nothing is timed. seconds: all of them together at least."""

    repeats: int
    seconds: float = LEAST_SECONDS

    def more(self, times: int) -> Timing:
        """So many times the repeats."""
        return Timing(self.repeats * times, self.seconds)


def timed(run: Callable[[], Sequence[Answer]], timing: Timing, prompt_tokens: int) -> Speeds:
    """Speeds over repeated runs. prompt_tokens: of all requests of one run together."""
    runs: list[tuple[float, float, float]] = []
    begun = time.perf_counter()
    while len(runs) < timing.repeats or time.perf_counter() - begun < timing.seconds:
        runs.append(_figures(run(), prompt_tokens))
    ttft, tpot, throughput = (Spread.of(values) for values in zip(*runs, strict=True))
    return Speeds(ttft, tpot if tpot.high > 0 else None, throughput)


def _figures(answers: Sequence[Answer], prompt_tokens: int) -> tuple[float, float, float]:
    """Of one run; tpot 0 where every answer is one token."""
    first = statistics.fmean(a.times[0] for a in answers)
    later = [(a.times[-1] - a.times[0]) / (len(a.times) - 1) for a in answers if len(a.times) > 1]
    total = prompt_tokens + sum(len(a.tokens) for a in answers)
    seconds = max(a.times[-1] for a in answers)
    return 1000 * first, 1000 * statistics.fmean(later) if later else 0.0, total / seconds
