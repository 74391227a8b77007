"""What packing promises beside values: the bytes that it plans for, and errors by type."""

from __future__ import annotations

from anychip.conform.operator_parts import random_parts
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError
from anychip.contract.formats import block_elements
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.contract.weights import WeightUse

UNKNOWN = "q9_9"
SIDE = 1024
"""Rows and columns of a weight that is larger than what an allocator rounds up to."""
PADDING = 2 << 20
"""Bytes that an allocation may take beyond what was asked for."""


def weights_refuse(chip: Chip) -> str | None:
    """What is wrong with how `plan` refuses: an unknown format it must, rows of part blocks it
    may; both by type."""
    formats = chip.capabilities().weight_formats
    odd = [(f, (4, block_elements(f) + 1)) for f in formats if block_elements(f) > 1]
    for format, shape in ((UNKNOWN, (32, 32)), *odd):
        what = f"plan of a {format} weight {shape}"
        try:
            chip.weights.plan((format,), (shape,), frozenset({WeightUse.LINEAR}))
        except ChipError:
            continue
        except Exception as error:  # noqa: BLE001 - any other type is the finding
            return f"{what} raises {type(error).__name__}, not ChipError: {error}"
        if format == UNKNOWN:
            return f"{what} is accepted, though there is no such format"
    return None


def weights_account(chip: Chip, use: WeightUse) -> str | None:
    """What is wrong with `plan(..).nbytes`: the device must lose as much as it says.

    Looked at only where `info` is exact: where it tells the same of a plain allocation, twice, and
    counts nothing of what else happens in the host's memory.
    """
    if chip.memory.unified:
        return None
    for format in chip.capabilities().weight_formats:
        if chip.weights.declines((format,), ((SIDE, SIDE),), frozenset({use})) is not None:
            continue
        parts = random_parts(format, (SIDE,), SIDE, "account")
        planned = chip.weights.plan((format,), ((SIDE, SIDE),), frozenset({use})).nbytes
        plain = {_taken_by_allocation(chip, planned) for _ in range(2)}
        before = chip.memory.info().used
        weight = chip.weights.prepare(parts.parts, frozenset({use}))
        taken = chip.memory.info().used - before
        chip.weights.release(weight)
        left = chip.memory.info().used - before
        exact = len(plain) == 1 and 0 <= min(plain) - planned <= PADDING
        if exact and abs(taken - min(plain)) > chip.memory.alignment:
            return f"a {format} weight takes {taken:,} bytes, plan says {planned:,}"
        if exact and left:
            return f"{left:,} bytes stay behind when a {format} weight is released"
    return None


def _taken_by_allocation(chip: Chip, nbytes: int) -> int:
    before = chip.memory.info().used
    buffer = chip.memory.allocate(nbytes)
    chip.memory.copy_in(Tensor((nbytes,), DType.UINT8, buffer=buffer), memoryview(bytes(nbytes)))
    taken = chip.memory.info().used - before
    chip.memory.free(buffer)
    return taken
