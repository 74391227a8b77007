"""What checks every step of an opened model (--check-ops): the oracle and all that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anychip.run.check import StepChecker
from anychip.run.dense import dense_reader, parts_reader
from anychip.run.divergences import DivergenceLog
from anychip.run.plan_run import Opened

SLOW = (
    "checking every operator of every step against the oracle: slow; steps of a model of 135M "
    "parameters took 16 to 90 times as long"
)


def step_checker(
    opened: Opened, folder: Path, device: int = 0, options: Mapping[str, str] | None = None
) -> StepChecker:
    """What checks the steps of an opened model. folder: for the calls that diverge. device,
    options: how the chip was opened, for the command that replays them."""
    converted = {w.source.name: w.converted for w in opened.plan.weights if w.converted}
    dense = dense_reader(opened.checkpoint, converted)
    parts = parts_reader(opened.checkpoint, converted)
    found = StepChecker(opened.plan, opened.chip, opened.decider, dense, parts)
    found.keep = DivergenceLog(folder, opened.chip, device, options)
    return found
