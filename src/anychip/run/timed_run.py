"""Runs a step call by call with a wait after each, which tells what every operator takes.

What is queued one by one and waited for takes longer than what is queued together, so these times
compare operators; their sum is not what a step takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from anychip.contract.execution import Queue
from anychip.figures import OperatorFigures
from anychip.run.programs import KeptCall, StepProgram

FIRST_WITHIN = 32
"""The first step is timed after so many at the latest, so that a short run has figures too."""

TellCall = Callable[[KeptCall, float, float], None]
"""(call, begin, end): seconds of `time.monotonic`."""


def run_timed(
    program: StepProgram, queue: Queue, before_late: Callable[[], None], told: TellCall
) -> None:
    """Run a bound step unrolled, whatever the chip captured of it: the same calls, one by one.

    before_late: called before those that read the masks. Raises ChipError, as the step would.
    """
    queue.synchronize(None)
    calls = program.calls
    late_from = len(calls) if program.late_from is None else program.late_from
    for index, call in enumerate(calls):
        if index == late_from:
            before_late()
            queue.synchronize(None)
        begun = time.monotonic()
        call.launch()
        queue.synchronize(None)
        told(call, begun, time.monotonic())
    if late_from == len(calls):
        before_late()


class TimedSteps:
    """Which steps are timed, and what was found. every: one of so many steps; 0: none.

    left: steps until the next one that is, this one included; 1: it is the next. Whoever runs a
    step without asking counts it off.
    """

    def __init__(self, every: int = 0) -> None:
        self.operators: dict[str, OperatorFigures] = {}
        self.every = every
        self.left = min(every, FIRST_WITHIN)

    def is_due(self) -> bool:
        """Count a step; whether it is to be timed."""
        if not self.every:
            return False
        self.left -= 1
        if self.left > 0:
            return False
        self.left = self.every
        return True

    def told(self, call: KeptCall, begun: float, ended: float) -> None:
        """Book one call."""
        found = self.operators.setdefault(call.spec.op, OperatorFigures())
        found.seconds += ended - begun
        found.calls += 1
