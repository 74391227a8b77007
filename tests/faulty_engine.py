"""The real engine with faults on demand, one list of them for each start; a builder for tests.

`chip_option["faults"]` names a JSON file: a list with what goes wrong in the first engine process,
in the second, and so on, each taken off the list as it begins. What is then left goes well.

    chip: options of the chip (the fake chip has faults). environment: variables of the process.
    out_of_memory: numbers of steps that end with this error, some before and some after they ran.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from anychip.contract.errors import out_of_memory
from anychip.engine.build import build_engine
from anychip.engine.engine import Engine
from anychip.engine.messages import EngineInfo
from anychip.plan import StepPlan, StepResult


class ShortOfMemory:
    """A runner some of whose steps find no memory: even ones beforehand, odd ones once done."""

    def __init__(self, runner, steps: list[int]) -> None:
        self._runner, self._steps = runner, frozenset(steps)

    def stage(self, plan: StepPlan) -> None:
        self._runner.stage(plan)

    def run(self, plan: StepPlan) -> StepResult:
        if plan.step in self._steps and plan.step % 2 == 0:
            raise out_of_memory("test", 1 << 40, 0)
        result = self._runner.run(plan)
        if plan.step in self._steps:
            raise out_of_memory("test", 1 << 40, 0)
        return result

    def close(self) -> None:
        self._runner.close()


def take_faults(path: Path) -> dict:
    """What is to go wrong in this process, and no longer in the next."""
    first, *rest = json.loads(path.read_text()) or [{}]
    path.write_text(json.dumps(rest))
    return first


def build(config, report) -> tuple[Engine, EngineInfo]:
    options = dict(config.chip_option)
    faults = take_faults(Path(options.pop("faults")))
    os.environ.update(faults.get("environment", {}))
    chip_option = options | faults.get("chip", {})
    config = dataclasses.replace(config, chip_option=chip_option)
    engine, info = build_engine(config, report, watched=True)
    # The steps have the runner too: one that they do not know would never run.
    engine.runner = ShortOfMemory(engine.runner, faults.get("out_of_memory", []))
    engine._steps._runner = engine.runner
    return engine, info
