"""Proof of the memory layer: the truth about what is left, bytes that arrive, a full device."""

from __future__ import annotations

import re
from functools import partial

from anychip.conform.expect import Broken, expect, judged, refused
from anychip.conform.memory_bytes import bytes_arrive
from anychip.conform.memory_lifetime import open_and_close
from anychip.conform.memory_trace import allocation_trace
from anychip.conform.memory_verbs import verb_checks
from anychip.conform.proof import Check, Level, Proof, inconclusive, passed
from anychip.conform.scratch import (
    GIB,
    KIB,
    MIB,
    Scratch,
    agree,
    expect_bytes,
    expect_returned,
    expect_sound,
    look,
    noise,
    noise_bytes,
    read,
    round_trip,
    write,
)
from anychip.conform.subject import Subject
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.registration import Chip
from anychip.contract.tensor import Buffer, Tensor

DEVICE_SIZES = (MIB, 16 * MIB)
HOST_SIZES = (256 * MIB,)
"""Allocations that must show in `info`: memory shared with the host moves on its own."""
PADDING = 16 * KIB
"""Bytes that an allocation may take beyond what was asked, besides a quarter of it."""
WHOLE = 4 * GIB
"""A largest allocation up to this size is really made, otherwise one of 1 GiB."""
BLOCKS = 64
"""Blocks of an eighth of the device that are asked for at most, until it is full."""
SMALL = 4096


def checks(subject: Subject) -> list[Check]:
    """M1 to M7."""
    level = Level.MEMORY
    return [
        Check("M1", level, _truth),
        Check("M2", level, bytes_arrive, gate=True),
        Check("M3", level, allocation_trace),
        Check("M4", level, _full),
        Check("M5", level, _strangers),
        Check("M6", level, open_and_close),
        *verb_checks(),
    ]


@judged
def _truth(subject: Subject) -> Proof:
    chip = subject.chip
    info = chip.memory.info()
    expect_sound(info)
    wanted = HOST_SIZES if chip.memory.unified else DEVICE_SIZES
    sizes = sorted({min(size, info.largest // 4) for size in wanted})
    with Scratch(chip) as scratch:
        scratch.touched(sizes[0])  # what a first allocation sets up stays
    for size in sizes:
        agree(partial(_untruth, chip, size))
    largest = _largest(chip)
    text = f"{info.used:,} of {info.total:,} bytes used ({info.source})"
    asked = " and ".join(f"{size:,}" for size in sizes)
    return passed(f"{text}; allocations of {asked} bytes show, {largest:,} fit at once")


def _untruth(chip: Chip, nbytes: int) -> str:
    """What `info` says wrong of one touched allocation; empty where it is right."""
    start = look(chip)
    with Scratch(chip) as scratch:
        scratch.touched(nbytes)
        held = look(chip)
    expect_sound(held.info)
    stay = min(look(chip).used_since(start))
    slack = nbytes // 4 if chip.memory.unified else 0
    least, most = nbytes - slack, nbytes + nbytes // 4 + PADDING + slack
    what, moved = f"an allocation of {nbytes:,} bytes", held.used_since(start)
    if not any(least <= more <= most for more in moved):
        limits = f"{least:,} to {most:,}"
        return f"{what} moves info.used by {moved[0]:,} bytes, it must be by {limits}"
    if stay > slack:
        return f"after the free of {what} {stay:,} bytes stay used"
    return ""


def _largest(chip: Chip) -> int:
    """Bytes of an allocation that info says would succeed, made. Raises Broken."""

    def problem() -> str:
        largest = look(chip).info.largest
        asked = largest if largest <= WHOLE else GIB
        made.append(max(asked - noise(chip), asked // 2))
        try:
            with Scratch(chip) as scratch:
                scratch.bytes(made[-1])
        except ChipError as error:
            return f"info.largest is {largest:,}, but an allocation of {made[-1]:,} fails: {error}"
        return ""

    made: list[int] = []
    agree(problem)
    return made[-1]


@judged
def _full(subject: Subject) -> Proof:
    chip = subject.chip
    start = look(chip)
    too_much = start.info.total + 1
    what = f"an allocation of {too_much:,} bytes, one more than there are,"
    full = ErrorKind.OUT_OF_MEMORY
    error = refused(lambda: chip.memory.allocate(too_much), what, kind=full)
    _expect_sizes(chip, error, too_much)
    text = "one byte too many is told with both sizes"
    if not chip.memory.unified:
        text += f", so is a device with {_fill(chip)} blocks"
    round_trip(chip)
    expect_returned(chip, start, "a full device")
    return passed(f"{text}; afterwards everything works")


def _expect_sizes(chip: Chip, error: ChipError, asked: int) -> None:
    """The text holds what was asked (a pool may round up) and about what is free."""
    digits = re.sub(r"(?<=\d)[,_](?=\d)", "", error.fact.text)
    numbers = [int(number) for number in re.findall(r"\d+", digits)]
    most = asked + asked // 4 + PADDING
    expect(any(asked <= n <= most for n in numbers), f"the text lacks the {asked:,} asked: {error}")
    info = chip.memory.info()
    near = info.total // 16
    told = any(abs(n - info.free) <= near for n in numbers)
    expect(told, f"the text lacks the {info.free:,} bytes that are free: {error}")


def _fill(chip: Chip) -> int:
    """Allocate until the device is full, lose nothing, go on; how many blocks fitted."""
    content = noise_bytes(4, SMALL)
    with Scratch(chip) as scratch:
        kept = scratch.bytes(SMALL)
        write(chip, kept, content)
        size = max(chip.memory.info().largest // 8, SMALL)
        blocks: list[Tensor] = []
        error = _until_full(scratch, size, blocks)
        _expect_sizes(chip, error, size)
        expect_bytes(read(chip, kept), content, "what was written before the device was full")
        expect(bool(blocks), f"not one block of {size:,} bytes fits, an eighth of info.largest")
        scratch.free(blocks[-1])
        blocks[-1] = scratch.bytes(size)
    return len(blocks)


def _until_full(scratch: Scratch, size: int, blocks: list[Tensor]) -> ChipError:
    """The error of the first block that does not fit. Raises Broken where all fit."""
    what = f"block {len(blocks) + 1} of {size:,} bytes"
    while len(blocks) < BLOCKS:
        what = f"block {len(blocks) + 1} of {size:,} bytes"
        try:
            blocks.append(scratch.bytes(size))
        except ChipError as error:
            fact, text = error.fact, f"{what} on a full device is refused as"
            expect(fact.kind is ErrorKind.OUT_OF_MEMORY, f"{text} '{fact.kind.value}': {error}")
            expect(not fact.fatal, f"{text} fatal, the core must go on: {error}")
            return error
    raise Broken(f"{what} is accepted, although eight of them were all that info.largest promised")


@judged
def _strangers(subject: Subject) -> Proof:
    chip = subject.chip
    gone = chip.memory.allocate(SMALL)
    chip.memory.free(gone)
    refused(lambda: chip.memory.free(gone), "a second free")
    for handle in (None, object()):
        made_up = Buffer(handle, 64)
        refused(partial(chip.memory.free, made_up), "the free of a made-up buffer")
    round_trip(chip)
    try:
        owner, other = subject.fresh(), subject.fresh()
    except ChipError as error:
        return inconclusive(f"a second free is refused; the device does not open twice: {error}")
    try:
        _expect_own(owner, other)
    finally:
        owner.close()
        other.close()
    return passed("a second free, a made-up buffer and one of another opened device are refused")


def _expect_own(owner: Chip, other: Chip) -> None:
    """A buffer belongs to the opened device that made it, and is whole after a wrong free."""
    content = noise_bytes(5, SMALL)
    mine = Tensor((SMALL,), DType.UINT8, buffer=owner.memory.allocate(SMALL))
    theirs = other.memory.allocate(SMALL)
    write(owner, mine, content)
    refused(lambda: other.memory.free(mine.buffer), "the free of another opened device's buffer")
    expect_bytes(read(owner, mine), content, "a buffer that another device was asked to free")
    owner.memory.free(mine.buffer)
    other.memory.free(theirs)
