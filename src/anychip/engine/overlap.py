"""Steps that run while the one before is booked: one thread for the chip, one for the scheduler.

The chip stays in the thread that opened it. The engine's loop moves to a thread of its own, hands
over plans and takes results back in the same order. While a step runs, native code does not hold
the interpreter's lock, and the loop commits, sends, receives and plans.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from anychip.plan import StepPlan

from .steps import Landed, StepRunner

SWITCH_S = 0.000_2
"""For so long a thread may keep the interpreter's lock; the usual 5 ms is a whole step."""


class OverlappedSteps:
    """Runs plans in the thread that calls `run_beside`, for a loop in another."""

    depth = 2

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner
        self._plans: SimpleQueue[StepPlan | None] = SimpleQueue()
        self._results: SimpleQueue[Landed | BaseException] = SimpleQueue()

    def launch(self, plan: StepPlan) -> None:
        """Have a step run behind those launched before."""
        self._runner.stage(plan)
        self._plans.put(plan)

    def collect(self) -> Landed:
        """Wait for the oldest step. Raises what its runner raised."""
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def run_beside(self, loop: Callable[[], None]) -> None:
        """Run steps until `loop`, in its own thread, has ended. Raises what it raised."""
        failures: list[BaseException] = []

        def run_loop() -> None:
            try:
                loop()
            except BaseException as error:  # noqa: BLE001 (raised again below, in the caller's thread)
                failures.append(error)
            finally:
                self._plans.put(None)

        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        thread = threading.Thread(target=run_loop, name="engine-loop")
        thread.start()
        try:
            self._run_steps()
        except BaseException as error:  # or the loop would wait for a step that never lands
            self._results.put(error)
            raise
        finally:
            thread.join()
            sys.setswitchinterval(usual)
        if failures:
            raise failures[0]

    def _run_steps(self) -> None:
        while (plan := self._plans.get()) is not None:
            begun = time.monotonic()
            try:
                result = self._runner.run(plan)
            except Exception as error:  # noqa: BLE001 (raised again by `collect`, in the loop's thread)
                self._results.put(error)
            else:
                self._results.put((result, begun, time.monotonic()))
