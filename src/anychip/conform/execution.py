"""Proof of the execution layer: one ordered queue, late errors, and what is built upon it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anychip.conform.elementwise import Elementwise
from anychip.conform.execution_errors import late_error
from anychip.conform.execution_slots import capture, communicator, telemetry
from anychip.conform.expect import judged
from anychip.conform.proof import Check, Level, Proof, passed
from anychip.conform.scratch import MIB, Scratch, expect_bytes, noise_bytes, read, write
from anychip.conform.subject import Subject
from anychip.contract.operators import Launch
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.ops.placed import place

ALTERNATIONS = ((4096, 180), (256 * 1024, 20))
"""Elements of a vector, and how often: small ones hurry, large ones keep the device busy."""
FREES = 50
QUEUED = 16
"""Launches that keep the queue busy."""
VECTOR = 16 * 1024
SOURCES = (1, 4096, 16 * MIB)
"""Bytes of copies whose source is overwritten at once."""


def checks(subject: Subject) -> list[Check]:
    """X1 to X5, T1, G1, C1."""
    level = Level.EXECUTION
    return [
        Check("X1", level, _order, gate=True),
        Check("X2", level, _sources),
        Check("X3", level, _frees),
        Check("X4", level, late_error),
        Check("X5", level, _launches),
        Check("T1", level, telemetry),
        Check("G1", level, capture),
        Check("C1", level, communicator),
    ]


@judged
def _order(subject: Subject) -> Proof:
    for size, times in ALTERNATIONS:
        with Scratch(subject.chip) as scratch:
            step = Elementwise(subject.chip, scratch, size)
            _alternate(subject.chip, step, times)
    total = sum(times for _, times in ALTERNATIONS)
    return passed(f"{total} times copy_in, {step.name}, copy_in, {step.name}, copy_out")


def _alternate(chip: Chip, step: Elementwise, times: int) -> None:
    """Copies in and launches in turns; every launch must see the copy before it."""
    source, first, second = (step.tensor() for _ in range(3))
    launches = step.launch(source, first), step.launch(source, second)
    for number in range(times):
        before, after = step.values(2 * number), step.values(2 * number + 1)
        write(chip, source, before)
        launches[0]()
        write(chip, source, after)
        launches[1]()
        what = f"alternation {number}, the launch"
        step.expect(first, before, f"{what} before the second copy_in")
        step.expect(second, after, f"{what} behind the second copy_in")


@judged
def _sources(subject: Subject) -> Proof:
    chip = subject.chip
    with Scratch(chip) as scratch:
        step = Elementwise(chip, scratch, VECTOR)
        launch = step.launch(step.tensor(step.values(1)), step.tensor())
        for nbytes in SOURCES:
            _overwrite(chip, scratch, nbytes, [launch] * QUEUED)
    sizes = ", ".join(f"{size:,}" for size in SOURCES)
    return passed(f"copies of {sizes} bytes behind {QUEUED} launches took what was there")


def _overwrite(chip: Chip, scratch: Scratch, nbytes: int, launches: Sequence[Launch]) -> None:
    """The source of a copy changes as soon as the call has returned."""
    source, content = noise_bytes(nbytes, nbytes), noise_bytes(nbytes, nbytes)
    target = scratch.bytes(nbytes)
    for launch in launches:
        launch()
    chip.memory.copy_in(target, source.data)
    source[:] = ~source
    for launch in launches:
        launch()
    what = f"a copy of {nbytes:,} bytes whose source was overwritten on return"
    expect_bytes(read(chip, target), content, what)


@judged
def _frees(subject: Subject) -> Proof:
    chip = subject.chip
    with Scratch(chip) as scratch:
        step = Elementwise(chip, scratch, VECTOR)
        target = step.tensor()
        for number in range(FREES):
            content = step.values(number)
            source = step.tensor(content)
            if number % 2:  # a copy that is still queued would put back what a hasty free spoils
                chip.queue.synchronize(None)
            step.launch(source, target)()
            scratch.free(source)
            garbage = step.tensor(np.full_like(content, 99))
            step.expect(target, content, f"time {number}, its input freed while it was queued")
            scratch.free(garbage)
    return passed(f"{FREES} inputs of '{step.name}' freed and reused behind its launch")


@judged
def _launches(subject: Subject) -> Proof:
    chip = subject.chip
    with Scratch(chip) as scratch:
        step = Elementwise(chip, scratch, VECTOR)
        sources = step.tensor(), step.tensor()
        targets = step.tensor(), step.tensor()
        launches = [step.launch(s, t) for s, t in zip(sources, targets, strict=True)]
        for number in range(4):
            contents = step.values(2 * number), step.values(2 * number + 1)
            for source, content in zip(sources, contents, strict=True):
                write(chip, source, content)
            for launch in launches if number % 2 else reversed(launches):
                launch()
            for target, content in zip(targets, contents, strict=True):
                step.expect(target, content, f"run {number} of two launches side by side")
    indices = _indices(chip)
    for timeout in (None, 5.0):
        chip.queue.synchronize(timeout)
    text = f"two launches of '{step.name}' ran 4 times in turns, each with what was there"
    return passed(f"{text}{indices}; waits on an idle queue return")


def _indices(chip: Chip) -> str:
    """Indices too are read when a launch runs. Empty where no implementation takes the call."""
    table = np.arange(32, dtype=np.float32).reshape(4, 8)
    inputs = {"table": table, "index": np.array([3], np.int32)}
    with place(chip, "gather_rows", inputs, {}) as placed:
        able = [i for i in chip.operators.of("gather_rows") if i.declines(placed.call.spec) is None]
        if not able:
            return ""
        launch = placed.prepare(able[0])
        index = placed.call.inputs["index"]
        assert isinstance(index, Tensor)
        for row in (3, 0, 2):
            write(chip, index, np.array([row], np.int32))
            launch()
            found = placed.outcome()["y"].view(np.uint8)
            expect_bytes(found.reshape(-1), table[row].view(np.uint8), f"gather_rows of row {row}")
    return ", so did one with other indices"
