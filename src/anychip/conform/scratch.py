"""Device memory for the length of a check: bytes in, bytes out, and what is left of the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.conform.expect import Broken, expect
from anychip.contract.dtype import DType
from anychip.contract.host import host_facts, resident
from anychip.contract.memory import MemoryInfo
from anychip.contract.registration import Chip
from anychip.contract.tensor import Buffer, Tensor, TensorSpec

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WINDOW = 16 * MIB
"""Bytes that are copied at a time where a large buffer is touched."""
NOISE = 64 * MIB
"""Bytes by which memory that is shared with the host may move between two looks."""
ATTEMPTS = 3
"""Looks at numbers that other processes can move; a chip that does not tell the truth fails all."""

Bytes = npt.NDArray[np.uint8]


class Scratch:
    """Buffers that are freed at the end; after an error they go when the device is closed."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self._buffers: list[Buffer] = []

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        while kind is None and self._buffers:
            self.chip.memory.free(self._buffers.pop())

    def bytes(self, nbytes: int) -> Tensor:
        """A buffer of its own. Raises ChipError."""
        return self.tensor(TensorSpec((nbytes,), DType.UINT8))

    def tensor(self, spec: TensorSpec) -> Tensor:
        """A contiguous tensor with a buffer of its own. Raises ChipError."""
        buffer = self.chip.memory.allocate(spec.nbytes)
        self._buffers.append(buffer)
        return Tensor(spec.shape, spec.dtype, buffer=buffer)

    def touched(self, nbytes: int) -> Tensor:
        """A buffer that is written once, so that the system has to give its pages."""
        whole, page = self.bytes(nbytes), np.full(min(nbytes, WINDOW), 0x5A, np.uint8)
        for at in range(0, nbytes, WINDOW):
            part = part_of(whole, at, min(WINDOW, nbytes - at))
            write(self.chip, part, page[: part.size])
        return whole

    def free(self, tensor: Tensor) -> None:
        """Free one before the end."""
        self._buffers = [b for b in self._buffers if b is not tensor.buffer]
        self.chip.memory.free(tensor.buffer)


def part_of(tensor: Tensor, start: int, nbytes: int) -> Tensor:
    """Bytes `start` .. `start + nbytes` of a byte tensor."""
    return tensor.view((nbytes,), offset=start)


def write(chip: Chip, tensor: Tensor, content: npt.NDArray[np.generic]) -> None:
    """Copy an array in."""
    chip.memory.copy_in(tensor, np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)


def read(chip: Chip, tensor: Tensor) -> Bytes:
    """A tensor's bytes."""
    target = np.zeros(tensor.nbytes, np.uint8)
    chip.memory.copy_out(tensor, target.data)
    return target


def noise_bytes(seed: int, nbytes: int) -> Bytes:
    """Random bytes, the same for the same seed."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def round_trip(chip: Chip, nbytes: int = 4097) -> None:
    """The chip works: random bytes come back as they were sent. Raises Broken, ChipError."""
    content = noise_bytes(nbytes, nbytes)
    with Scratch(chip) as scratch:
        tensor = scratch.bytes(nbytes)
        write(chip, tensor, content)
        expect_bytes(read(chip, tensor), content, f"a round trip of {nbytes:,} bytes")


def expect_bytes(found: Bytes, wanted: Bytes, what: str) -> None:
    """The same bytes, otherwise the first that differs is named. Raises Broken."""
    wrong = np.flatnonzero(found != wanted)
    if wrong.size:
        at = int(wrong[0])
        text = f"{what}: {wrong.size:,} of {wanted.size:,} bytes differ, the first is byte {at:,}"
        raise Broken(f"{text}: {found[at]:#04x}, it must be {wanted[at]:#04x}")


@dataclass(frozen=True)
class Look:
    """What the chip says, and what other processes hold of a memory that it shares with the host.

    others: bytes from an arbitrary zero, only differences count; 0 for memory of its own.
    """

    info: MemoryInfo
    others: int

    def used_since(self, before: Look) -> tuple[int, int]:
        """Bytes by which `used` grew: as told, and without what other processes took."""
        told = self.info.used - before.info.used
        return told, told - (self.others - before.others)


def look(chip: Chip) -> Look:
    """The memory when nothing is queued any more."""
    chip.queue.synchronize(None)
    return Look(chip.memory.info(), _others() if chip.memory.unified else 0)


def _others() -> int:
    """Whatever is not available to all and not resident here; 0 where the system does not say."""
    try:
        return -host_facts().available - resident()
    except OSError:
        return 0


def noise(chip: Chip) -> int:
    """Bytes by which `used` may move although the chip did nothing."""
    return NOISE if chip.memory.unified else 0


def agree(problem: Callable[[], str]) -> None:
    """Look until there is no problem; the last one is told. Raises Broken."""
    text = ""
    for _ in range(ATTEMPTS):
        text = problem()
        if not text:
            return
    raise Broken(text)


def expect_returned(chip: Chip, start: Look, what: str) -> None:
    """`used` is what it was. Raises Broken."""

    def problem() -> str:
        more = min(look(chip).used_since(start))
        if more <= noise(chip):
            return ""
        return f"after {what} {more:,} bytes more than the {start.info.used:,} before are used"

    agree(problem)


def expect_sound(info: MemoryInfo) -> None:
    """Figures that fit together. Raises Broken."""
    for name in ("total", "used", "free", "largest"):
        value = getattr(info, name)
        expect(isinstance(value, int) and value >= 0, f"info.{name} is {value!r}, no size in bytes")
    expect(info.total > 0, "info.total is 0: a device has some memory")
    text = f"info.used {info.used:,} + free {info.free:,} is not total {info.total:,}"
    expect(info.used + info.free == info.total, f"{text}: count what is set aside as used")
    text = f"info.largest {info.largest:,} is more than free {info.free:,}"
    expect(info.largest <= info.free, text)
    expect(bool(info.source), "info.source is empty: say where the numbers come from")
