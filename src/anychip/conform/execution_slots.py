"""T1, G1, C1: telemetry, capture and communicator keep their promises, or are empty slots."""

from __future__ import annotations

import socket
from itertools import pairwise

import numpy as np

from anychip.conform.elementwise import Elementwise
from anychip.conform.expect import expect, judged
from anychip.conform.proof import Proof, passed, unsupported
from anychip.conform.scratch import (
    KIB,
    MIB,
    Scratch,
    agree,
    expect_bytes,
    expect_sound,
    look,
    noise_bytes,
    read,
    write,
)
from anychip.conform.subject import Subject
from anychip.contract.dtype import DType
from anychip.contract.optional import Communicator, Reading, Telemetry
from anychip.contract.registration import Chip
from anychip.contract.tensor import TensorSpec

DEVICE_SIZE, HOST_SIZE = 16 * MIB, 256 * MIB
"""An allocation that telemetry must show; memory shared with the host moves on its own."""
COLDEST, HOTTEST = -60.0, 150.0
"""Degrees Celsius between which a device works."""
MOST_WATTS = 10_000.0
VECTOR = 4097
REPLAYS = 2
LENGTHS = (1, 1000, 1001)
REDUCED = (DType.FLOAT32, DType.BFLOAT16, DType.INT32)
BARRIER_SECONDS = 10.0


@judged
def telemetry(subject: Subject) -> Proof:
    """T1: the same memory as info, and plausible values."""
    chip = subject.chip
    if chip.telemetry is None:
        return unsupported("telemetry is an empty slot")
    size = HOST_SIZE if chip.memory.unified else DEVICE_SIZE
    size = min(size, chip.memory.info().largest // 4)
    for nbytes in (0, size):
        with Scratch(chip) as scratch:
            scratch.touched(nbytes)
            agree(lambda: _disagreement(chip, telemetry_of(chip), size // 4 + 16 * KIB))
    reading = telemetry_of(chip).read()
    _expect_plausible(reading)
    told = [
        f"{name} {value:g}"
        for name in ("utilization", "temperature", "power")
        if (value := getattr(reading, name)) is not None
    ]
    also = f"; also {', '.join(told)}" if told else "; nothing else is told"
    return passed(f"info's memory, with and without {size:,} bytes more{also}")


def telemetry_of(chip: Chip) -> Telemetry:
    """The filled slot."""
    assert chip.telemetry is not None
    return chip.telemetry


def _disagreement(chip: Chip, told: Telemetry, slack: int) -> str:
    info, memory = look(chip).info, told.read().memory
    expect_sound(memory)
    if memory.total != info.total:
        return f"telemetry tells a total of {memory.total:,} bytes, info {info.total:,}"
    if abs(memory.used - info.used) > slack:
        return f"telemetry tells {memory.used:,} bytes used, info {info.used:,} ({info.source})"
    return ""


def _expect_plausible(reading: Reading) -> None:
    share, heat, power = reading.utilization, reading.temperature, reading.power
    expect(share is None or 0 <= share <= 1, f"utilization {share} is no share of 0 to 1")
    right = heat is None or COLDEST <= heat <= HOTTEST
    expect(right, f"temperature {heat} lies outside of {COLDEST:g} to {HOTTEST:g} degrees Celsius")
    right = power is None or 0 <= power <= MOST_WATTS
    expect(right, f"power {power} lies outside of 0 to {MOST_WATTS:g} watts")


@judged
def capture(subject: Subject) -> Proof:
    """G1: three chained launches as one, with other inputs and poisoned outputs, twice."""
    chip = subject.chip
    if chip.capture is None:
        return unsupported("capture is an empty slot")
    with Scratch(chip) as scratch:
        step = Elementwise(chip, scratch, VECTOR)
        chain = [step.tensor(step.values(0)) for _ in range(4)]
        launches = [step.launch(a, b) for a, b in pairwise(chain)]
        whole = chip.capture.capture(launches)
        for number in range(1, REPLAYS + 1):
            write(chip, chain[0], step.values(number))
            results = []
            for launch in (lambda: [one() for one in launches], whole):
                for tensor in chain[1:]:
                    write(chip, tensor, np.full(tensor.nbytes, 0xFF, np.uint8))
                launch()
                results.append(np.concatenate([read(chip, tensor) for tensor in chain]))
            what = f"replay {number} of three captured launches of '{step.name}'"
            expect_bytes(results[1], results[0], what)
    return passed(f"{REPLAYS} replays of three launches of '{step.name}' gave the same bytes")


@judged
def communicator(subject: Subject) -> Proof:
    """C1: one rank alone keeps its data."""
    if subject.chip.communicator is None:
        return unsupported("communicator is an empty slot")
    chip = subject.fresh()
    try:
        assert chip.communicator is not None
        chip.communicator.join(0, 1, f"tcp://127.0.0.1:{_free_port()}")
        for dtype in REDUCED:
            for length in LENGTHS:
                _expect_alone(chip, chip.communicator, TensorSpec((length,), dtype))
        chip.communicator.barrier(BARRIER_SECONDS)
    finally:
        chip.close()
    dtypes = ", ".join(map(str, REDUCED))
    return passed(f"all_reduce, all_gather and barrier of one rank, in {dtypes}")


def _expect_alone(chip: Chip, ranks: Communicator, spec: TensorSpec) -> None:
    # Small positive numbers of any dtype here: no NaN, whose bits may change on the way.
    content = noise_bytes(spec.size, spec.nbytes)
    content &= 0x3F
    what = f"of {spec.size:,} elements of {spec.dtype} over one rank"
    with Scratch(chip) as scratch:
        source, target = scratch.tensor(spec), scratch.tensor(spec)
        write(chip, source, content)
        for operation in ("sum", "max"):
            ranks.all_reduce(source, operation)
            expect_bytes(read(chip, source), content, f"all_reduce ({operation}) {what}")
        ranks.all_gather(target, source)
        expect_bytes(read(chip, target), content, f"all_gather {what}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
