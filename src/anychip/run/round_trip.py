"""Copies there and back: what the doctor says of a device's copies."""

from __future__ import annotations

import os

from anychip.contract.build import Finding, Verdict
from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.tensor import Buffer, Tensor

COPIED_SIZES = (2**20, 1, 4097, 65_539) * 2
"""Bytes of each round trip: whole and odd sizes, and often enough for a fault now and then."""
MOSTLY = 0.9
"""Part of a copy's end that must differ for all of it to be missing: random bytes may be equal."""


def copies_finding(memory: Memory, step: str) -> Finding:
    """Random bytes of several sizes, in and out again. step: what to do where some are wrong."""
    buffer = memory.allocate(max(COPIED_SIZES))
    try:
        told = [_round_trip(memory, buffer, size) for size in COPIED_SIZES]
    finally:
        memory.free(buffer)
    if wrong := next(filter(None, told), ""):
        return Finding("copies", Verdict.BAD, wrong, step)
    text = f"{max(COPIED_SIZES):,} bytes went in and came back, and other sizes"
    return Finding("copies", Verdict.GOOD, text)


def _round_trip(memory: Memory, buffer: Buffer, size: int) -> str:
    """Random bytes in and out again: what was wrong with it, or nothing."""
    sent, back = os.urandom(size), bytearray(size)
    tensor = Tensor((size,), DType.UINT8, buffer=buffer)
    memory.copy_in(tensor, memoryview(sent))
    memory.copy_out(tensor, memoryview(back))
    wrong = [at for at, (a, b) in enumerate(zip(sent, back, strict=True)) if a != b]
    if not wrong:
        return ""
    end = size - wrong[0]
    if wrong[0] == 0 or len(wrong) < MOSTLY * end:
        return f"{len(wrong):,} of {size:,} bytes came back changed"
    memory.copy_out(tensor, memoryview(back))
    way = "out of" if back == sent else "into"
    text = f"the last {end:,} of {size:,} bytes did not arrive on the way {way} the device: host "
    return text + "and device count the length of a copy differently"
