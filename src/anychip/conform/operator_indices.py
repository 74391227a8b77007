"""O8: an implementation that does not read the host half of an index pair does not read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from anychip.conform.operator_calls import (
    distance,
    finish,
    judged,
    naming,
    run_case,
    spec_of,
)
from anychip.conform.operator_cases import asked, types_of
from anychip.conform.operator_launches import each
from anychip.conform.proof import Proof, failed, inconclusive, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.signature import ArgKind
from anychip.contract.tensor import IndexPair
from anychip.ops.cases import Case
from anychip.ops.check import outcome
from anychip.ops.placed import Placed, host_bytes, place

GARBAGE = -7
_BY_ORDER = ("cu_q", "token_rows")
"""Indices that say how the batch is cut: they stay when all others change."""


def index_arguments(op: str) -> tuple[str, ...]:
    """Arguments that are index pairs."""
    return tuple(a.name for a in CATALOGUE[op].inputs if a.kind is ArgKind.INDEX)


def device_half(op: str) -> Callable[[Subject], Proof]:
    """O8 of one operator."""
    return each(op, _followed, _cases)


def _cases(chip: Chip, implementation: Implementation) -> Iterator[Case]:
    """Calls whose indices can change while everything else stays: the first in each dtype."""
    for types in types_of(chip, implementation.op):
        for case in asked(chip, implementation.op, types):
            other = _changed(case)
            if other is not None and implementation.declines(spec_of(chip, case)) is None:
                yield case
                break


def _changed(case: Case) -> Case | None:
    """The same call with other indices and another result; None where there is none."""
    rows = case.inputs.get("token_rows")
    if rows is not None and not np.array_equal(rows, np.arange(len(case.inputs["cu_q"]) - 1)):
        return None  # only one token a row can be reversed
    changes = {n: _other(case.op, n, case.inputs[n]) for n in index_arguments(case.op)}
    other = replace(case, inputs={**case.inputs, **changes}, control=None)
    results = (outcome(c.op, c.inputs, c.attrs) for c in (case, other))
    return other if distance(*results) > 0 else None


def _other(op: str, name: str, index: Any) -> Any:
    if name in _BY_ORDER or (op == "kv_copy_pages" and name == "targets"):
        return index.copy()
    if name == "top_k":
        return np.full_like(index, 1)
    return np.ascontiguousarray(index[::-1])


def _followed(chip: Chip, implementation: Implementation, case: Case) -> Proof:
    other = _changed(case)
    if other is None:
        return inconclusive(f"{case.name}: other indices give the same result")
    problem = _stale(chip, implementation, case, other)
    if problem is not None:
        return failed(f"{implementation.id}, {case.name}: {problem}")
    if implementation.reads_host:
        return unsupported(f"{implementation.id} declares reads_host")
    return passed(f"{implementation.id} follows the device half, changed between two launches")


def _stale(chip: Chip, implementation: Implementation, case: Case, other: Case) -> str | None:
    """What is wrong with one prepared launch whose indices change."""
    names = index_arguments(case.op)
    copies = {n: v.copy() if n in names else v for n, v in case.inputs.items()}
    with naming(case, implementation), place(chip, case.op, copies, case.attrs) as placed:
        launch = placed.prepare(implementation)
        for asked_case in (case, other):
            _put(chip, placed, asked_case, garbage=not implementation.reads_host)
            placed.poison()
            finish(chip, launch)
            found = placed.outcome()
            if not CATALOGUE[case.op].writes and not _agrees(asked_case, found, implementation):
                return _blame(implementation, asked_case is case)
        if CATALOGUE[case.op].writes:
            return _both_written(chip, implementation, (case, other), found)
    return None


def _agrees(case: Case, found: Any, implementation: Implementation) -> bool:
    return judged(case, found, implementation).ok


def _blame(implementation: Implementation, first: bool) -> str:
    if not first:
        return "a launch keeps the indices that it was prepared with"
    half = "both halves" if implementation.reads_host else f"the host half held {GARBAGE}"
    return f"the result does not follow the device half ({half})"


def _both_written(
    chip: Chip, implementation: Implementation, cases: tuple[Case, Case], found: Any
) -> str | None:
    """A cache holds what both launches wrote: the oracle's answer to one after the other."""
    first = outcome(cases[0].op, cases[0].inputs, cases[0].attrs)
    written = {n: first[n] for n in CATALOGUE[cases[0].op].writes}
    second = replace(cases[1], inputs={**cases[1].inputs, **written})
    if judged(second, found, implementation).ok:
        return None
    alone = run_case(chip, cases[0], implementation).outcome
    right = judged(cases[0], alone, implementation).ok
    return _blame(implementation, first=not right)


def _put(chip: Chip, placed: Placed, case: Case, *, garbage: bool) -> None:
    """Fill both halves, as the runner does; the host half with what nobody may read."""
    for name in index_arguments(case.op):
        pair = placed.call.inputs[name]
        assert isinstance(pair, IndexPair)
        host = np.asarray(pair.host)
        host[...] = case.inputs[name]
        if case.inputs[name].size:
            chip.memory.copy_in(pair.device, host_bytes(case.inputs[name]))
        if garbage:
            host[...] = GARBAGE
