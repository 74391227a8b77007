"""An engine whose device computes by itself: a step takes its time, and no core of this machine.

A stand-in for a card, to see what the host's work beside it costs. The tokens mean nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from anychip.config import ServeConfig
from anychip.engine.engine import Engine
from anychip.engine.messages import EngineInfo
from anychip.plan import NOT_SAMPLED, CacheLimits, StepPlan, StepResult
from anychip.schedule.scheduler import Scheduler

VOCABULARY = 32000
LIMITS = CacheLimits(
    pages=16384, page_size=16, context_length=4096, max_running=256, step_tokens=2048, chunk=2048
)


class IdleDevice:
    """Waits `step_s` for each step."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def run(self, plan: StepPlan) -> StepResult:
        """Wait; a token follows from how far its row is."""
        until = time.perf_counter() + self.step_s
        tokens = tuple(
            (row.start * 7 + row.slot) % VOCABULARY if row.sample else NOT_SAMPLED
            for row in plan.rows
        )
        time.sleep(max(0.0, until - time.perf_counter()))
        return StepResult(tokens=tokens)

    def close(self) -> None:
        """Nothing was opened."""


def build(config: ServeConfig, report: Callable[[str], None]) -> tuple[Engine, EngineInfo]:
    """The builder; chip option step_ms: how long a step takes."""
    step_s = float(config.chip_option["step_ms"]) / 1000
    scheduler = Scheduler(LIMITS, frozenset())
    engine = Engine(scheduler, IdleDevice(step_s), overlap=not config.disable_overlap_schedule)
    report(f"a device that waits {step_s * 1000:g} ms a step")
    return engine, EngineInfo(
        backend="idle",
        device="idle:0",
        model_name="idle",
        vocab_size=VOCABULARY,
        context_length=LIMITS.context_length,
        page_size=LIMITS.page_size,
        pages=LIMITS.pages,
        max_running=LIMITS.max_running,
    )
