"""M7: each optional verb of memory does what the contract says, or is an empty slot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from anychip.conform.elementwise import Elementwise
from anychip.conform.expect import expect, judged, refused
from anychip.conform.proof import Check, Level, Proof, inconclusive, passed, unsupported
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
from anychip.contract.layer import empty_slots
from anychip.contract.registration import Chip, probe_chip
from anychip.contract.tensor import Tensor

SIZES = (0, 1, 63, 65, 4097, MIB + 1)
FILLINGS = (0, 0x5A, 255)
VIEWED = 4096
"""Elements that a launch writes before a view of them is looked at."""
ASKED = (100, 5000, 300 * KIB + 1)
"""Allocations by which a pool's numbers must move."""


def verb_checks() -> list[Check]:
    """M7 for every optional verb."""
    verbs: dict[str, Callable[[Subject], Proof]] = {
        "fill": _fill,
        "copy": _copy,
        "copy_peer": _copy_peer,
        "allocate_pinned": _pinned,
        "host_view": _host_view,
        "statistics": _statistics,
        "traffic": _traffic,
    }
    return [
        Check("M7", Level.MEMORY, _where_filled(verb, run), subject=verb)
        for verb, run in verbs.items()
    ]


def _where_filled(verb: str, run: Callable[[Subject], Proof]) -> Callable[[Subject], Proof]:
    @judged
    def check(subject: Subject) -> Proof:
        if verb in empty_slots(type(subject.chip.memory)):
            return unsupported(f"memory.{verb} is an empty slot")
        return run(subject)

    return check


def _gaps(scratch: Scratch) -> Tensor:
    """64 elements that do not lie side by side."""
    return Tensor((4, 16), DType.UINT8, (32, 1), buffer=scratch.bytes(128).buffer)


def _gone(scratch: Scratch) -> Tensor:
    """64 bytes that are freed."""
    tensor = scratch.bytes(64)
    scratch.free(tensor)
    return tensor


def _fill(subject: Subject) -> Proof:
    chip = subject.chip
    fill = chip.memory.fill
    with Scratch(chip) as scratch:
        for size in SIZES:
            for byte in FILLINGS:
                _fill_window(chip, scratch, size, byte)
        tensor, gaps, gone = scratch.bytes(64), _gaps(scratch), _gone(scratch)
        for byte in (-1, 256):
            refused(partial(fill, tensor, byte), f"fill with {byte}")
        refused(lambda: fill(gaps, 0), "fill of a tensor with gaps")
        refused(lambda: fill(gone, 0), "fill of a freed buffer")
    round_trip(chip)
    return passed(f"{len(SIZES)} sizes of windows, in call order; 4 wrong calls were refused")


def _fill_window(chip: Chip, scratch: Scratch, size: int, byte: int) -> None:
    """A window in random bytes; what is copied in before and behind the call stays in order."""
    content = noise_bytes(size, size + 128)
    whole = scratch.bytes(content.size)
    write(chip, whole, content)
    chip.memory.fill(part_of(whole, 64, size), byte)
    write(chip, part_of(whole, 64, min(size, 1)), np.full(min(size, 1), 7, np.uint8))
    content[64 : 64 + size] = byte
    content[64 : 64 + min(size, 1)] = 7
    what = f"a window of {size:,} bytes at byte 64 filled with {byte}, the first byte then with 7"
    expect_bytes(read(chip, whole), content, what)
    scratch.free(whole)


def _copy(subject: Subject) -> Proof:
    chip = subject.chip
    copy = chip.memory.copy
    with Scratch(chip) as scratch:
        for size in SIZES:
            _copy_window(chip, scratch, size)
        tensor, short = scratch.bytes(64), scratch.bytes(63)
        gaps, gone = _gaps(scratch), _gone(scratch)
        refused(lambda: copy(tensor, short), "copy of 63 bytes to 64")
        refused(lambda: copy(short, tensor), "copy of 64 bytes to 63")
        refused(lambda: copy(tensor, gaps), "copy from a tensor with gaps")
        refused(lambda: copy(gaps, tensor), "copy to a tensor with gaps")
        refused(lambda: copy(tensor, gone), "copy from a freed buffer")
        refused(lambda: copy(gone, tensor), "copy to a freed buffer")
    round_trip(chip)
    return passed(f"{len(SIZES)} sizes of windows, in call order; 6 wrong calls were refused")


def _copy_window(chip: Chip, scratch: Scratch, size: int) -> None:
    """From a window to another; the source is overwritten behind the call."""
    content, moved = noise_bytes(1, size + 128), noise_bytes(2, size)
    whole, source = scratch.bytes(content.size), scratch.bytes(size)
    write(chip, whole, content)
    write(chip, source, moved)
    chip.memory.copy(part_of(whole, 64, size), source)
    write(chip, source, np.zeros(size, np.uint8))
    content[64 : 64 + size] = moved
    what = f"{size:,} bytes copied to byte 64, their source overwritten afterwards"
    expect_bytes(read(chip, whole), content, what)
    scratch.free(whole)
    scratch.free(source)


def _copy_peer(subject: Subject) -> Proof:
    others = [
        d.index
        for d in probe_chip(subject.cls, subject.options).devices
        if d.index != subject.device
    ]
    if not others:
        return inconclusive("one device: copy_peer needs a second one")
    chip, other = subject.chip, subject.cls.open(others[0], subject.options)
    content = noise_bytes(6, MIB + 1)
    try:
        with Scratch(chip) as here, Scratch(other) as there:
            source, target = here.bytes(content.size), there.bytes(content.size)
            write(chip, source, content)
            chip.memory.copy_peer(target, source, others[0])
            chip.queue.synchronize(None)
            expect_bytes(read(other, target), content, f"a copy to device {others[0]}")
    finally:
        other.close()
    return passed(f"{content.size:,} bytes went to device {others[0]}")


def _pinned(subject: Subject) -> Proof:
    chip = subject.chip
    for size in (1, 4097, MIB + 1):
        source, target = (chip.memory.allocate_pinned(size) for _ in range(2))
        for memory in (source, target):
            right = memory.nbytes == size and memory.c_contiguous and not memory.readonly
            expect(right, f"allocate_pinned({size:,}) gives {memory.nbytes:,} bytes, or read-only")
        content = noise_bytes(size, size)
        np.frombuffer(source, np.uint8)[:] = content
        with Scratch(chip) as scratch:
            tensor = scratch.bytes(size)
            chip.memory.copy_in(tensor, source)
            chip.memory.copy_out(tensor, target)
        found = np.frombuffer(target, np.uint8)
        expect_bytes(found, content, f"{size:,} bytes between two pieces of pinned memory")
    refused(lambda: chip.memory.allocate_pinned(-1), "allocate_pinned(-1)")
    return passed("pinned memory carries bytes both ways")


def _host_view(subject: Subject) -> Proof:
    chip = subject.chip
    view = chip.memory.host_view
    with Scratch(chip) as scratch:
        for size in SIZES:
            _view_window(chip, scratch, size)
        step = Elementwise(chip, scratch, VIEWED)
        source, target = step.tensor(step.values(1)), step.tensor(step.values(2))
        step.launch(source, target)()
        found = np.frombuffer(view(target), np.uint8).copy()
        what = f"the view of what {step.name} wrote, looked at without a wait,"
        expect_bytes(found, read(chip, target), what)
        gaps, gone = _gaps(scratch), _gone(scratch)
        refused(lambda: view(gaps), "a view of a tensor with gaps")
        refused(lambda: view(gone), "a view of a freed buffer")
    round_trip(chip)
    return passed(f"{len(SIZES)} sizes of windows, both ways; 2 wrong calls were refused")


def _view_window(chip: Chip, scratch: Scratch, size: int) -> None:
    """A window in random bytes is read, and written, where it lies."""
    content = noise_bytes(size, size + 128)
    whole = scratch.bytes(content.size)
    write(chip, whole, content)
    view = chip.memory.host_view(part_of(whole, 64, size))
    right = view.nbytes == size and view.c_contiguous and view.format == "B" and not view.readonly
    expect(right, f"a view of {size:,} bytes has {view.nbytes:,}, gaps, no bytes, or is read-only")
    what = f"a view of {size:,} bytes at byte 64, looked at without a wait,"
    expect_bytes(np.frombuffer(view, np.uint8), content[64 : 64 + size], what)
    content[64 : 64 + size] = noise_bytes(size + 1, size)
    view[:] = content[64 : 64 + size].data
    expect_bytes(read(chip, whole), content, f"{size:,} bytes written in place at byte 64")
    scratch.free(whole)


def _statistics(subject: Subject) -> Proof:
    chip = subject.chip
    before = chip.memory.statistics()
    with Scratch(chip) as scratch:
        for size in ASKED:
            scratch.bytes(size)
        held = chip.memory.statistics()
    chip.queue.synchronize(None)
    after = chip.memory.statistics()
    asked = held.asked - before.asked
    expect(asked == sum(ASKED), f"{sum(ASKED):,} bytes were asked, statistics say {asked:,}")
    for name in ("used", "asked"):
        start, end = getattr(before, name), getattr(after, name)
        expect(start == end, f"statistics().{name} is {end:,} after the frees, before {start:,}")
    for said in (before, held, after):
        right = said.used >= said.asked >= 0 and said.cached >= 0
        expect(right, f"{said}: used is at least asked, nothing is negative")
        slack = 1 - said.asked / said.used if said.used else 0.0
        text = f"fragmentation {said.fragmentation:.4f}, {slack:.4f} of used was not asked for"
        expect(abs(said.fragmentation - slack) < 1e-3, text)
    return passed(f"{asked:,} bytes asked, {held.used - before.used:,} handed out")


def _traffic(subject: Subject) -> Proof:
    chip = subject.chip
    with Scratch(chip) as scratch:
        tensor = scratch.bytes(4097)
        part = part_of(tensor, 0, 1000)
        chip.queue.synchronize(None)
        before = chip.memory.traffic()
        write(chip, tensor, noise_bytes(7, 4097))
        read(chip, part)
        refused(lambda: write(chip, part, noise_bytes(8, 999)), "copy_in of 999 bytes to 1,000")
        after = chip.memory.traffic()
        chip.queue.synchronize(None)
        still = chip.memory.traffic()
    moved = after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out
    expect(moved == (4097, 1000), f"4,097 bytes went in and 1,000 out, traffic says {moved}")
    expect(still == after, f"a wait moved bytes: {after} became {still}")
    took = after.seconds_in - before.seconds_in, after.seconds_out - before.seconds_out
    expect(min(took) >= 0, f"seconds of copies went back: {before} became {after}")
    timed = "with their seconds" if any(took) else "seconds are not measured"
    return passed(f"every byte of a copy is counted, nothing else is; {timed}")
