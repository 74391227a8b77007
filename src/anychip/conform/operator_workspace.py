"""O11: the declared workspace is enough, its contents do not matter, and it never shrinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np

from anychip.conform.operator_calls import naming, nothing_own, run_case, same_bytes, spec_of
from anychip.conform.operator_cases import middle, types_of
from anychip.conform.operator_edges import specs_at
from anychip.conform.operator_launches import each
from anychip.conform.proof import Proof, failed, passed
from anychip.conform.subject import Subject
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, Implementation, Launch
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.ops.cases import Case
from anychip.ops.cases.grid import DIMENSIONS

SENTINELS, SENTINEL_BYTES = 4, 4096
OF_THE_MODEL = frozenset({"S"})
"""Dimensions that are fixed when a server starts and are no size of a step: the page size."""


def scratch(op: str) -> Callable[[Subject], Proof]:
    """O11 of one operator."""

    def run(subject: Subject) -> Proof:
        chip = subject.chip
        if not chip.operators.of(op):
            return nothing_own(op)
        shrinks = _first_shrinking(chip, op)
        return failed(shrinks) if shrinks is not None else each(op, _apart, _cases)(subject)

    return run


def _cases(chip: Chip, implementation: Implementation) -> Iterator[Case]:
    """Two middle-sized covered cases an activation dtype."""
    for types in types_of(chip, implementation.op):
        found = middle(chip, implementation.op, types)
        yield from [c for c in found if implementation.declines(spec_of(chip, c)) is None][:2]


def _apart(chip: Chip, implementation: Implementation, case: Case) -> Proof:
    where = f"{implementation.id}, {case.name}"
    with naming(case, implementation), sentinels(chip) as held:
        runs = [run_case(chip, case, _prefilled(chip, implementation, b)) for b in (0xFF, 0)]
        changed = _changed(chip, held)
    if changed:
        text = f"{where}: a call changed {changed:,} bytes of buffers that it was not given"
        return failed(text)
    damaged = next((r.damaged for r in runs if r.damaged is not None), None)
    if damaged is not None:
        return failed(f"{where}: bytes beside '{damaged}' were written")
    if not same_bytes(runs[0].outcome, runs[1].outcome):
        return failed(f"{where}: the result depends on what the workspace held before")
    nbytes = implementation.workspace(spec_of(chip, case))
    return passed(f"{implementation.id}: {nbytes:,} bytes declared, no others touched")


def _prefilled(chip: Chip, implementation: Implementation, byte: int) -> Implementation:
    """The same, over a workspace full of that byte."""

    def prepare(call: Call) -> Launch:
        if call.workspace is not None:
            filled = np.full(call.workspace.nbytes, byte, np.uint8)
            chip.memory.copy_in(call.workspace, filled.data)
        return implementation.prepare(call)

    return replace(implementation, prepare=prepare)


@contextmanager
def sentinels(chip: Chip) -> Iterator[list[Tensor]]:
    """Buffers that nobody is given, each with its own pattern."""
    held: list[Tensor] = []
    try:
        for number in range(SENTINELS):
            buffer = chip.memory.allocate(SENTINEL_BYTES)
            held.append(Tensor((SENTINEL_BYTES,), DType.UINT8, buffer=buffer))
            chip.memory.copy_in(held[-1], _pattern(number).data)
        yield held
    finally:
        for tensor in held:
            chip.memory.free(tensor.buffer)


def _pattern(number: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, SENTINEL_BYTES, np.uint8)


def _changed(chip: Chip, held: list[Tensor]) -> int:
    """Bytes of the sentinels that are not what they were."""
    count = 0
    for number, tensor in enumerate(held):
        seen = np.zeros(SENTINEL_BYTES, np.uint8)
        chip.memory.copy_out(tensor, seen.data)
        count += int(np.count_nonzero(seen != _pattern(number)))
    return count


def _first_shrinking(chip: Chip, op: str) -> str | None:
    """A size that grows and takes less workspace: memory is set aside for the largest alone."""
    for implementation in chip.operators.of(op):
        for dimension in DIMENSIONS[op]:
            if dimension.name in OF_THE_MODEL:
                continue
            found = _workspaces(chip, implementation, dimension.name, sorted(dimension.sizes))
            for (small, less), (large, more) in pairwise(found):
                if more < less:
                    sizes = f"{less:,} bytes at {dimension.name}={small}, {more:,} at {large}"
                    return f"{implementation.id}: the workspace shrinks: {sizes}"
    return None


def _workspaces(
    chip: Chip, implementation: Implementation, name: str, sizes: list[int]
) -> list[tuple[int, int]]:
    """(size, bytes) of every covered size, in the preferred dtype."""
    found, types = [], types_of(chip, implementation.op)[:1]
    for size in sizes:
        (spec,) = specs_at(chip, implementation.op, types, {name: size})
        if spec is not None and implementation.declines(spec) is None:
            found.append((size, implementation.workspace(spec)))
    return found
