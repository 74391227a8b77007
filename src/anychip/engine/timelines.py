"""When the engine did what for the requests that are traced; the others cost nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from anychip.plan import Row, StepPlan
from anychip.request import Doing, Mark, Request, StepOutput

MOST_MARKS = 512
"""Entries of one timeline; the decoding steps behind them are told together, in the last one."""

Place = tuple[int, int]
"""A request's slot, -1 where it waits, and how often it was retracted."""
PlaceOf = Callable[[str], Place | None]


@dataclass
class _Timeline:
    marks: list[Mark] = field(default_factory=list)
    queued: float | None = None  # since when it waits for its turn
    compiling: float | None = None  # since when its grammar is compiled
    filling: bool = True  # until a step has chosen a token, again after a retraction
    retractions: int = 0

    def add(self, mark: Mark) -> None:
        """Append, or join with the entry before where there are many."""
        last = self.marks[-1] if self.marks else None
        both = last is not None and last.doing is mark.doing is Doing.DECODE
        if last is None or not both or len(self.marks) < MOST_MARKS:
            self.marks.append(mark)
            return
        self.marks[-1] = msgspec.structs.replace(
            last, end=mark.end, tokens=last.tokens + mark.tokens, steps=last.steps + 1
        )


class Timelines:
    """Of the traced requests that the engine has. clock: seconds, monotonic.

    open: by request. flying: what steps in flight do for them, by step, until it lands. Where both
    are empty nothing has to be told.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.open: dict[str, _Timeline] = {}
        self.flying: dict[int, list[tuple[str, Mark]]] = {}

    def begin(self, request: Request, *, compiling: bool) -> None:
        """A request came. compiling: its grammar comes before the queue."""
        if request.traced:
            now = self._clock()
            timeline = _Timeline(queued=now)
            timeline.compiling = now if compiling else None
            self.open[request.id] = timeline

    def compiled(self, request_id: str) -> None:
        """Its grammar is ready: it waits for its turn now."""
        timeline = self.open.get(request_id)
        if timeline is not None and timeline.compiling is not None:
            now = self._clock()
            timeline.add(Mark(doing=Doing.GRAMMAR, begin=timeline.compiling, end=now))
            timeline.compiling, timeline.queued = None, now

    def planned(self, plan: StepPlan, place_of: PlaceOf) -> None:
        """A step is about to run."""
        now = self._clock()
        rows = {row.slot: row for row in plan.rows}
        flying = []
        for request_id, timeline in self.open.items():
            slot, retractions = place_of(request_id) or (-1, 0)
            if retractions > timeline.retractions:
                timeline.retractions = retractions
                timeline.add(Mark(doing=Doing.RETRACTED, begin=now, end=now))
                timeline.queued, timeline.filling = now, True
            if slot in rows:
                flying.append((request_id, _take_off(timeline, rows[slot], now)))
        if flying:
            self.flying[plan.step] = flying

    def landed(self, plan: StepPlan, begin: float, end: float) -> None:
        """A step is over. begin, end: when the chip worked on it."""
        flying = self.flying.pop(plan.step, ())
        if not flying:
            return
        decoding = sum(len(row.tokens) == 1 and row.start > 0 for row in plan.rows)
        for request_id, mark in flying:
            timeline = self.open.get(request_id)
            if timeline is not None:
                timeline.add(
                    msgspec.structs.replace(
                        mark,
                        begin=begin,
                        end=end,
                        step=plan.step,
                        rows=len(plan.rows),
                        decoding=decoding,
                        step_tokens=plan.token_count,
                    )
                )

    def lost(self, plan: StepPlan) -> None:
        """A step failed."""
        self.flying.pop(plan.step, None)

    def handed_over(self, outputs: Sequence[StepOutput]) -> list[StepOutput]:
        """The outputs, those that are last with the timeline of their request."""
        return [self._with_timeline(output) for output in outputs]

    def _with_timeline(self, output: StepOutput) -> StepOutput:
        if output.finish is None or output.request_id not in self.open:
            return output
        timeline, now = self.open.pop(output.request_id), self._clock()
        if timeline.compiling is not None:
            timeline.add(Mark(doing=Doing.GRAMMAR, begin=timeline.compiling, end=now))
        elif timeline.queued is not None:
            timeline.add(Mark(doing=Doing.QUEUE, begin=timeline.queued, end=now))
        return msgspec.structs.replace(output, timeline=tuple(timeline.marks))


def _take_off(timeline: _Timeline, row: Row, now: float) -> Mark:
    """What the step will have done for a request, once it lands."""
    if timeline.queued is not None:
        timeline.add(Mark(doing=Doing.QUEUE, begin=timeline.queued, end=now))
        timeline.queued = None
    doing = Doing.PREFILL if timeline.filling else Doing.DECODE
    timeline.filling = timeline.filling and not row.sample
    return Mark(doing=doing, begin=now, end=now, tokens=len(row.tokens))
