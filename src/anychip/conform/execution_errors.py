"""X4: an error of queued work comes out at the next wait and names what was queued.

An index far outside of its table is the one mistake that every chip can be brought to make. It may
end the process, so an installed chip makes it in a child.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anychip.conform.elementwise import Elementwise
from anychip.conform.expect import Broken, Lacking, expect, judged
from anychip.conform.proof import Proof, inconclusive, passed
from anychip.conform.scratch import Scratch
from anychip.conform.subject import Subject
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.discovery import chip_names, load_chip
from anychip.contract.errors import ChipError
from anychip.contract.operators import Launch
from anychip.contract.registration import Chip
from anychip.ops.placed import Placed, place

OP = "gather_rows"
FAR = 2**30
"""An index whose row would lie gigabytes behind its table."""
ON_DEMAND = "fail_launch"
"""An option by which a chip lets its n-th launch fail, for tests like this one."""
WAIT_SECONDS = 30.0
CHILD_SECONDS = 150.0

Seen = dict[str, str]
"""What was seen. stage: where the error came out, empty where none did. text: the error's.
problem: what is wrong with it; lacking: why nothing was run."""


@judged
def late_error(subject: Subject) -> Proof:
    """One error that the chip makes by itself, one on demand where it can."""
    on_demand = _on_demand(subject)
    seen = _provoked(subject)
    if "lacking" in seen:
        raise Lacking(seen["lacking"])
    _expect_told(seen, OP)
    if seen["stage"]:
        return passed(f"an index of {FAR:,} is told {seen['stage']}: {seen['text']}{on_demand}")
    quiet = f"an index of {FAR:,} is noticed by nothing"
    if on_demand:
        return passed(f"{quiet}{on_demand}")
    return inconclusive(f"{quiet}, so no late error could be provoked")


def _expect_told(seen: Seen, op: str) -> None:
    expect("problem" not in seen, seen.get("problem", ""))
    named = not seen["stage"] or op in seen["text"]
    expect(named, f"the error told {seen['stage']} does not name '{op}': {seen['text']}")


def _provoked(subject: Subject) -> Seen:
    if not _is_installed(subject.cls):
        return provoke(subject.fresh())
    question = {"name": subject.cls.name, "device": subject.device, "options": subject.options}
    try:
        seen: Seen = run_in_child(f"{__name__}:provoke_in_child", question, CHILD_SECONDS)
    except ChildFailed as error:
        text = f"an index of {FAR:,} in '{OP}' ends the process instead of the call: {error}"
        raise Broken(text) from error
    return seen


def _is_installed(cls: type[Chip]) -> bool:
    """Whether a child finds this very class by its name."""
    return cls.name in chip_names() and load_chip(cls.name) is cls


def provoke_in_child(question: Mapping[str, Any]) -> Seen:
    """The child's side: the same chip, opened by its name."""
    cls = load_chip(question["name"])
    return provoke(cls.open(question["device"], question["options"]))


def provoke(chip: Chip) -> Seen:
    """Gather a row that is not there, on a chip that is closed afterwards."""
    inputs = {"table": np.ones((4, 8), np.float32), "index": np.full(1, FAR, np.int32)}
    placed = place(chip, OP, inputs, {})
    if not any(i.declines(placed.call.spec) is None for i in chip.operators.of(OP)):
        placed.close()
        chip.close()
        return {"lacking": f"no implementation of '{OP}' takes a float32 table"}
    return _closed(chip, _run(chip, placed))


def _run(chip: Chip, placed: Placed) -> Seen:
    able = (i for i in chip.operators.of(OP) if i.declines(placed.call.spec) is None)
    stage = "when the call is prepared"
    try:
        launch = placed.prepare(next(able))
        stage = "at the launch"
        launch()
        stage = "at the next wait"
        chip.queue.synchronize(WAIT_SECONDS)
    except ChipError as error:
        return {"stage": stage, "text": str(error)}
    except Exception as error:  # noqa: BLE001 - a chip may raise anything; it is told
        text = f"an error of queued work comes out as {type(error).__name__}, not as ChipError"
        return {"stage": stage, "text": str(error), "problem": f"{text}: {error}"}
    placed.close()
    return {"stage": "", "text": ""}


def _closed(chip: Chip, seen: Seen) -> Seen:
    """After an error another wait ends, told again or not, and the device closes."""
    step = "a wait after the error"
    try:
        try:
            chip.queue.synchronize(WAIT_SECONDS)
        except ChipError as error:
            seen.setdefault("again", str(error))
        step = "close after the error"
        chip.close()
    except Exception as error:  # noqa: BLE001 - a chip may raise anything; it is told
        seen.setdefault("problem", f"{step} raises {type(error).__name__}: {error}")
    return seen


def _on_demand(subject: Subject) -> str:
    """How a launch that was made to fail is told; empty where the chip has no such option."""
    if ON_DEMAND not in {o.name for o in subject.cls.options}:
        return ""
    chip = subject.fresh(**{ON_DEMAND: 1})
    scratch = Scratch(chip)
    step = Elementwise(chip, scratch, 64)
    launch = step.launch(step.tensor(step.values(0)), step.tensor())
    seen = _launched(chip, launch)
    expect(bool(seen["stage"]), f"'{step.name}' failed on demand, and no wait tells it")
    _expect_told(_closed(chip, seen), step.name)
    return f"; one made to fail ({ON_DEMAND}=1) is told {seen['stage']}"


def _launched(chip: Chip, launch: Launch) -> Seen:
    stage = "at the launch"
    try:
        launch()
        stage = "at the next wait"
        chip.queue.synchronize(WAIT_SECONDS)
    except ChipError as error:
        return {"stage": stage, "text": str(error)}
    return {"stage": "", "text": ""}
