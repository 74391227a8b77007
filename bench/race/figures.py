"""From answers to figures, and from the figures of several repeats to medians and ratios."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from race.completions import Answer, BatchRun

Line = Mapping[str, object]
"""One line of results.jsonl."""


@dataclass(frozen=True)
class Figure:
    """A figure that engines are compared by. key: of a line; work: of the lines that have it."""

    title: str
    work: str
    key: str
    more_is_better: bool

    def gain(self, ours: float, theirs: float) -> float:
        """How many times as good ours is; above 1 where we win."""
        return ours / theirs if self.more_is_better else theirs / ours


W1_DECODE = Figure("W1 decode, tok/s", "W1", "decode_rate", True)
W1_FIRST = Figure("W1 first token, ms", "W1", "first_mean_ms", False)
W2_OUTPUT = Figure("W2 output, tok/s", "W2", "output_rate", True)
W2_FIRST = Figure("W2 mean first token, ms", "W2", "first_mean_ms", False)
W3_WALL = Figure("W3 wall, s", "W3", "wall_s", False)
W4_FIRST = Figure("W4 first token, ms", "W4", "first_mean_ms", False)
W5_MOST = Figure("W5 at 64 streams, tok/s", "W5-64", "output_rate", True)
START = Figure("start to first token, s", "server", "start_s", False)
PEAK = Figure("peak memory of all processes, MiB", "server", "peak_mib", False)
SHARED_ONCE = Figure("the same, shared pages once, MiB", "server", "shared_once_mib", False)

FIGURES = (
    W1_DECODE,
    W1_FIRST,
    W2_OUTPUT,
    W2_FIRST,
    W3_WALL,
    W4_FIRST,
    W5_MOST,
    START,
    PEAK,
    SHARED_ONCE,
)


@dataclass(frozen=True)
class Spread:
    """Median, least and most of several repeats."""

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises statistics.StatisticsError for no values."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        if self.count == 1:
            return rounded(self.median)
        return f"{rounded(self.median)} ({rounded(self.least)} to {rounded(self.most)})"


def rounded(value: float) -> str:
    """Three digits that count; whole numbers from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percentile(values: Iterable[float], share: float) -> float:
    """Between the two nearest of the sorted values. share: 0 to 1."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def figures_of(run: BatchRun) -> dict[str, object]:
    """The figures of one batch: ms a token and a first token, tokens a second, seconds."""
    batch, answers = run.batch, run.answers
    made = sum(answer.tokens for answer in answers)
    firsts = [1000 * answer.first for answer in answers]
    later = [1000 * gap for answer in answers if (gap := _gap(answer)) is not None]
    found: dict[str, object] = {
        "work": batch.label,
        "requests": len(answers),
        "at_once": batch.at_once,
        "prompt_tokens": batch.prompt_tokens,
        "output_tokens": made,
        "counted": all(answer.counted for answer in answers),
        "wall_s": run.wall,
        "output_rate": made / run.wall,
        "first_mean_ms": statistics.fmean(firsts),
        "first_p99_ms": percentile(firsts, 0.99),
    }
    if later:
        mean = statistics.fmean(later)
        found |= {"token_mean_ms": mean, "decode_rate": 1000 / mean}
    cached = [answer.cached for answer in answers if answer.cached is not None]
    if len(cached) == len(answers):
        found["hit_rate"] = sum(cached) / batch.prompt_tokens
    return found


def _gap(answer: Answer) -> float | None:
    """Seconds between two tokens; None where there are no two, or all came in one piece."""
    gaps = answer.tokens - 1
    return (answer.last - answer.first) / gaps if gaps and answer.last > answer.first else None


class Results:
    """Lines of a race, asked by engine, work and key."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)
        self._values: dict[tuple[str, str, str], dict[int, float]] = {}
        for line in self.lines:
            self._keep(line)

    def _keep(self, line: Line) -> None:
        if line["kind"] not in ("batch", "server"):
            return
        for key, value in line.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                where = (str(line["engine"]), str(line["work"]), key)
                self._values.setdefault(where, {})[_repeat(line)] = float(value)

    def kind(self, kind: str) -> list[Line]:
        """Lines of one kind: batch, server, machine, model, error, skipped."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def engines(self) -> list[str]:
        """Names of the engines that were started, in the order of their first line."""
        return list(dict.fromkeys(str(line["engine"]) for line in self.kind("server")))

    def by_repeat(self, engine: str, work: str, key: str) -> dict[int, float]:
        """repeat -> value; empty where there is none."""
        return self._values.get((engine, work, key), {})

    def spread(self, engine: str, work: str, key: str) -> Spread | None:
        """Over the repeats; None where there is no value."""
        values = list(self.by_repeat(engine, work, key).values())
        return Spread.of(values) if values else None

    def gain(self, figure: Figure, ours: str, theirs: str) -> Spread | None:
        """How many times as good ours is, repeat by repeat: both ran near each other in time.
        None where no repeat has both."""
        mine = self.by_repeat(ours, figure.work, figure.key)
        other = self.by_repeat(theirs, figure.work, figure.key)
        gains = [figure.gain(mine[r], other[r]) for r in mine if r in other]
        return Spread.of(gains) if gains else None

    def streams(self, engine: str) -> dict[int, Spread]:
        """Streams at once in W5 -> output tokens a second."""
        works = {w for e, w, _ in self._values if e == engine and w.startswith("W5-")}
        counts = sorted(int(work.removeprefix("W5-")) for work in works)
        found = {n: self.spread(engine, f"W5-{n}", "output_rate") for n in counts}
        return {n: spread for n, spread in found.items() if spread is not None}


def _repeat(line: Line) -> int:
    repeat = line["repeat"]
    if not isinstance(repeat, int):
        raise TypeError(f"repeat is {repeat!r}")
    return repeat


def rises(values: Sequence[float]) -> bool:
    """Whether each value is above the one before."""
    return all(later > earlier for earlier, later in itertools.pairwise(values))
