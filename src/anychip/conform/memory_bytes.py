"""M2: bytes arrive as they were sent, and a copy that cannot be right is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from anychip.conform.expect import judged, refused
from anychip.conform.proof import Proof, passed
from anychip.conform.scratch import (
    KIB,
    MIB,
    Scratch,
    expect_bytes,
    noise_bytes,
    part_of,
    read,
    round_trip,
    write,
)
from anychip.conform.subject import Subject
from anychip.contract.dtype import DType
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor, TensorSpec

SIZES = (0, 1, 3, 63, 64, 65, 4095, 4096, 4097, MIB + 1)
WHOLE, WINDOW = 256 * KIB, 64 * KIB + 1
"""Bytes of a buffer and of a window in its middle."""

Refusal = tuple[str, Callable[[], object]]


@judged
def bytes_arrive(subject: Subject) -> Proof:
    """Round trips of awkward sizes, windows, and every refusal of the contract."""
    chip = subject.chip
    for nbytes in SIZES:
        round_trip(chip, nbytes)
    for offset in (chip.memory.alignment, 1, 4 * KIB + 3):
        _window(chip, offset)
    _elements(chip)
    count = 0
    with Scratch(chip) as scratch:
        for what, call in _refusals(chip, scratch):
            refused(call, what)
            round_trip(chip)
            count += 1
    sizes = f"{len(SIZES)} sizes up to {SIZES[-1]:,} bytes"
    return passed(f"{sizes} and 3 windows came back, {count} wrong copies were refused")


def _window(chip: Chip, offset: int) -> None:
    """A copy into the middle of a buffer leaves its neighbours alone."""
    content, inner = noise_bytes(1, WHOLE), noise_bytes(2, WINDOW)
    with Scratch(chip) as scratch:
        whole = scratch.bytes(WHOLE)
        window = part_of(whole, offset, WINDOW)
        write(chip, whole, content)
        write(chip, window, inner)
        content[offset : offset + WINDOW] = inner
        what = f"after a copy to byte {offset} of a buffer"
        expect_bytes(read(chip, whole), content, what)
        expect_bytes(read(chip, window), inner, f"a window at byte {offset}")


def _elements(chip: Chip) -> None:
    """Host memory of another format and shape: only its bytes count."""
    source, target = np.arange(15, dtype=np.float32).reshape(3, 5), np.zeros((3, 5), np.float32)
    with Scratch(chip) as scratch:
        tensor = scratch.tensor(TensorSpec((5, 3), DType.FLOAT32))
        chip.memory.copy_in(tensor, source.data)
        chip.memory.copy_out(tensor, target.data)
    found, wanted = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    expect_bytes(found, wanted, "float32 on the host, [3, 5] against [5, 3]")


def _refusals(chip: Chip, scratch: Scratch) -> Iterator[Refusal]:
    """What must be refused, with the call that does it."""
    memory, tensor = chip.memory, scratch.bytes(64)
    for size in (63, 65):
        host = np.zeros(size, np.uint8)
        text = f"{size} bytes on the host and 64 on the device"
        yield f"copy_in of {text}", partial(memory.copy_in, tensor, host.data)
        yield f"copy_out of {text}", partial(memory.copy_out, tensor, host.data)
    host = np.zeros(64, np.uint8)
    gaps = Tensor((4, 16), DType.UINT8, (32, 1), buffer=scratch.bytes(128).buffer)
    yield "copy_in to a tensor with gaps", lambda: memory.copy_in(gaps, host.data)
    yield "copy_out of a tensor with gaps", lambda: memory.copy_out(gaps, host.data)
    holes = np.zeros((64, 2), np.uint8)[:, 0]
    yield "copy_in from host memory with gaps", lambda: memory.copy_in(tensor, holes.data)
    yield "copy_out to host memory with gaps", lambda: memory.copy_out(tensor, holes.data)
    fixed = memoryview(bytes(64))
    yield "copy_out to read-only memory", lambda: memory.copy_out(tensor, fixed)
    gone = scratch.bytes(64)
    scratch.free(gone)
    yield "copy_in to a freed buffer", lambda: memory.copy_in(gone, host.data)
    yield "copy_out of a freed buffer", lambda: memory.copy_out(gone, host.data)
    yield "an allocation of -1 bytes", lambda: memory.allocate(-1)
