"""The ratios that are wanted, each to the peer named, and how a race's results stand to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from race.figures import (
    W1_DECODE,
    W2_FIRST,
    W2_OUTPUT,
    W3_WALL,
    W4_FIRST,
    W5_MOST,
    Figure,
    Line,
    Results,
    Spread,
)

OURS = "anychip"


@dataclass(frozen=True)
class Target:
    """At least `least` times as good as a peer. ours, theirs: widths that are compared; None: the
    best that each has. aim: wished for, not demanded."""

    figure: Figure
    peer: str
    least: float
    ours: str | None
    theirs: str | None
    aim: bool = False


TARGETS = (
    *(Target(W1_DECODE, "llama.cpp", 1.3, w, w) for w in ("bf16", "8-bit", "4-bit")),
    Target(W1_DECODE, "llama.cpp", 1.3, None, None),
    Target(W2_OUTPUT, "vllm", 2.5, "bf16", "bf16"),
    Target(W2_FIRST, "vllm", 2.0, "bf16", "bf16"),
    Target(W2_OUTPUT, "vllm", 4.0, "8-bit", "bf16", aim=True),
    Target(W3_WALL, "vllm", 2.5, "bf16", "bf16"),
    Target(W3_WALL, "vllm", 4.0, "8-bit", "bf16", aim=True),
    Target(W4_FIRST, "vllm", 2.2, "bf16", "bf16"),
    Target(W5_MOST, "vllm", 2.8, "bf16", "bf16"),
)

START_SECONDS = 1.5
OVERHEAD_MIB = 200
"""Resident memory beyond weights and cache."""


@dataclass(frozen=True)
class Verdict:
    """A target and what was found. gain None: no repeat has both engines."""

    target: Target
    ours: str | None
    theirs: str | None
    gain: Spread | None

    @property
    def says(self) -> str:
        """In a word or two."""
        if self.gain is None:
            return "not measured"
        if self.gain.median >= self.target.least:
            return "reached"
        return "short of the aim" if self.target.aim else "MISSED"


def verdicts(results: Results) -> Iterator[Verdict]:
    """Each target; the best engine where several have the width."""
    widths = {str(line["engine"]): line for line in results.kind("server")}
    for target in TARGETS:
        ours = _best(results, target.figure, _of(widths, OURS, target.ours))
        theirs = _best(results, target.figure, _of(widths, target.peer, target.theirs))
        gain = results.gain(target.figure, ours, theirs) if ours and theirs else None
        yield Verdict(target, ours, theirs, gain)


def _of(lines: Mapping[str, Line], family: str, width: str | None) -> list[str]:
    return [
        name
        for name, line in lines.items()
        if line["family"] == family and width in (None, line["width"])
    ]


def _best(results: Results, figure: Figure, engines: list[str]) -> str | None:
    """The engine whose median is best; None where none has the figure."""
    found = {e: s.median for e in engines if (s := results.spread(e, figure.work, figure.key))}
    sign = 1 if figure.more_is_better else -1
    return max(found, key=lambda engine: sign * found[engine], default=None)
