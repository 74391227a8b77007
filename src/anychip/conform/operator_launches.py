"""O5, O6 and O7: what is seen when one implementation runs the same call more than once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from anychip.conform.operator_calls import (
    arrays_of,
    finish,
    naming,
    nothing_own,
    opaque,
    run_case,
    same_bytes,
    spec_of,
)
from anychip.conform.operator_cases import asked, middle, types_of
from anychip.conform.operator_rows import rows_alone
from anychip.conform.proof import Proof, Status, failed, inconclusive, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.layer import empty_slots
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.ops.cases import Case
from anychip.ops.check import outcome
from anychip.ops.oracle.arrays import is_float, wide
from anychip.ops.placed import POISON, OpaqueCache, place

OTHER_POISON = 0x5A
"""Bytes that are an ordinary number of every type: what a NaN may hide, this shows."""
REPEATS, FEWEST = 100, 5
SLOW = 0.005
"""Seconds of a run beyond which there are fewer repeats."""
BUDGET = REPEATS * SLOW
"""Seconds that repeats of one case may take, beyond FEWEST."""

_GRAVITY = (
    Status.FAIL,
    Status.MISSING,
    Status.INCONCLUSIVE,
    Status.PASS,
    Status.UNSUPPORTED,
)
"""What of several proofs is told: the first of these."""

Cases = Callable[[Chip, Implementation], Iterator[Case]]
Judge = Callable[[Chip, Implementation, Case], Proof]


def covered(chip: Chip, implementation: Implementation) -> Iterator[Case]:
    """The middle-sized covered case of each activation dtype."""
    for types in types_of(chip, implementation.op):
        for case in middle(chip, implementation.op, types):
            if implementation.declines(spec_of(chip, case)) is None:
                yield case
                break


def each(op: str, judge: Judge, cases: Cases = covered) -> Callable[[Subject], Proof]:
    """A check that asks `judge` about every implementation's cases; its first complaint counts."""

    def run(subject: Subject) -> Proof:
        chip = subject.chip
        implementations = chip.operators.of(op)
        if not implementations:
            return nothing_own(op)
        proofs: list[Proof] = []
        try:
            for implementation in implementations:
                proofs += [judge(chip, implementation, c) for c in cases(chip, implementation)]
        except OpaqueCache as error:
            return opaque(chip, op, error)
        return _worst(op, proofs)

    return run


def _worst(op: str, proofs: list[Proof]) -> Proof:
    if not proofs:
        return inconclusive(f"no case of '{op}' is covered by its implementations")
    return min(proofs, key=lambda proof: _GRAVITY.index(proof.status))


def every_element(op: str) -> Callable[[Subject], Proof]:
    """O5 of one operator."""

    def all_cases(chip: Chip, implementation: Implementation) -> Iterator[Case]:
        for types in types_of(chip, op)[:1]:
            for case in asked(chip, op, types):
                if implementation.declines(spec_of(chip, case)) is None:
                    yield case

    return each(op, _written, all_cases)


def _written(chip: Chip, implementation: Implementation, case: Case) -> Proof:
    where = f"{implementation.id}, {case.name}"
    first = run_case(chip, case, implementation).outcome
    other = run_case(chip, case, implementation, poison=OTHER_POISON).outcome
    missed = _not_a_number(case, first)
    if missed is not None:
        return failed(f"{where}: '{missed}' has a NaN where the oracle has a number")
    if same_bytes(first, other):
        return passed("outputs are the same over two kinds of poison")
    again = run_case(chip, case, implementation).outcome
    if not same_bytes(first, again):
        return inconclusive(f"{where}: other bytes over the same poison too: see O7")
    return failed(f"{where}: {_differing(first, other)} depends on what was in the memory")


def _not_a_number(case: Case, found: Mapping[str, Any]) -> str | None:
    """The output that has a NaN where the oracle has a number."""
    expected = arrays_of(outcome(case.op, case.inputs, case.attrs))
    for name, array in arrays_of(found).items():
        if is_float(array) and (np.isnan(wide(array)) & ~np.isnan(wide(expected[name]))).any():
            return name
    return None


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Which output differs, and in how many bytes."""
    left, right = arrays_of(a), arrays_of(b)
    for name, array in left.items():
        pair = (np.frombuffer(x.tobytes(), np.uint8) for x in (array, right[name]))
        count = int(np.count_nonzero(np.not_equal(*pair)))
        if count:
            return f"'{name}' ({count:,} of {array.nbytes:,} bytes)"
    return "nothing"


def stays_on_device(op: str) -> Callable[[Subject], Proof]:
    """O6 of one operator."""

    def run(subject: Subject) -> Proof:
        memory = subject.chip.memory
        if "traffic" in empty_slots(type(memory)):
            return unsupported("memory.traffic is an empty slot: what crosses cannot be told")
        if memory.unified:
            return unsupported("unified memory: nothing has to cross")
        return each(op, _crossing)(subject)

    return run


def _crossing(chip: Chip, implementation: Implementation, case: Case) -> Proof:
    with naming(case, implementation), place(chip, case.op, case.inputs, case.attrs) as placed:
        launch = placed.prepare(implementation)
        chip.queue.synchronize(None)
        before = chip.memory.traffic()
        finish(chip, launch)
        after = chip.memory.traffic()
    moved = (after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out)
    if any(moved):
        text = f"{moved[1]:,} bytes went to the host and {moved[0]:,} came back"
        return failed(f"{implementation.id}, {case.name}: {text} during one launch")
    return passed(f"{implementation.id}: nothing crossed")


def the_same_again(op: str) -> Callable[[Subject], Proof]:
    """O7 of one operator."""
    return each(op, _repeated)


def _repeated(chip: Chip, implementation: Implementation, case: Case) -> Proof:
    outcomes = _outcomes(chip, implementation, case)
    first, count = next(outcomes), 1
    for other in outcomes:
        count += 1
        if not same_bytes(first, other):
            text = f"run {count} differs from run 1 in {_differing(first, other)}"
            return failed(f"{implementation.id}, {case.name}: {text}", repeats=count)
    alone = rows_alone(chip, implementation, case, first)
    if alone.problem is not None:
        return failed(f"{implementation.id}, {case.name}: {alone.problem}", repeats=count)
    text = f"{implementation.id}: {count} runs give the same bytes{alone.text}"
    return passed(text, repeats=count, row_alone_relative_l2=alone.apart)


def _outcomes(chip: Chip, implementation: Implementation, case: Case) -> Iterator[dict[str, Any]]:
    """Of one launch again and again; of a fresh call each time where it changes its inputs."""
    if CATALOGUE[case.op].writes:
        for _ in range(FEWEST):
            yield dict(run_case(chip, case, implementation).outcome)
        return
    with naming(case, implementation), place(chip, case.op, case.inputs, case.attrs) as placed:
        launch, spent = placed.prepare(implementation), 0.0
        for count in range(REPEATS):
            if count >= FEWEST and spent > BUDGET:
                return
            placed.poison(POISON)
            start = time.perf_counter()
            finish(chip, launch)
            spent += time.perf_counter() - start
            yield placed.outcome()
