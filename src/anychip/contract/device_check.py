"""A check of a device that any chip may use: ones in, added there, back out, in a child process."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor

COUNT = 4
LONGER = "run it again with a longer timeout"


def check_in_child(
    cls: type[Chip],
    device: int,
    timeout: float,
    options: Mapping[str, Any],
    if_sick: str = LONGER,
) -> Finding:
    """What `Chip.check_device` gives, for a chip with an `add`. if_sick: what to do about a device
    that hangs, fails or adds wrongly."""
    name = f"{cls.name} device {device}"
    question = {
        "module": cls.__module__,
        "class": cls.__name__,
        "device": device,
        "options": dict(options),
    }
    try:
        seen = run_in_child(f"{__name__}:double_ones", question, timeout)
    except ChildFailed as error:
        return Finding(name, Verdict.BAD, str(error), if_sick)
    if isinstance(seen, str):
        return Finding(name, Verdict.BAD, seen, f"anychip build {cls.name}")
    if seen == [2.0] * COUNT:
        return Finding(name, Verdict.GOOD, "ones were added on the device")
    text = f"1 + 1 gave {seen}: wrongly added, or bytes did not arrive"
    return Finding(name, Verdict.BAD, text, if_sick)


def double_ones(question: Mapping[str, Any]) -> list[float] | str:
    """In the child process. A text is about the build layer, not about the device."""
    cls = getattr(import_module(question["module"]), question["class"])
    try:
        chip = cls.open(question["device"], question["options"])
    except ChipError as error:
        if error.fact.layer is not ChipLayer.BUILD:
            raise
        return str(error)
    ones, y = (Tensor((COUNT,), DType.FLOAT32, buffer=chip.memory.allocate(16)) for _ in range(2))
    chip.memory.copy_in(ones, memoryview(array("f", [1.0] * COUNT)))
    spec = CallSpec("add", {"a": ones.spec, "b": ones.spec}, {"y": y.spec}, {})
    chip.operators.of("add")[0].prepare(Call(spec, {"a": ones, "b": ones}, {"y": y}))()
    result = array("f", [0.0] * COUNT)
    chip.memory.copy_out(y, memoryview(result))
    chip.close()
    return list(result)
