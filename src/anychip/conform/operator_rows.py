"""Batch invariance: one row of a call, as a call of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anychip.conform.operator_calls import bound_of, run_case, spec_of
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.ops.cases import Case
from anychip.ops.check import relative_l2
from anychip.ops.oracle.arrays import Array, is_float

ROWS = ("T", "R")
"""Names of the dimension whose rows do not depend on each other."""


@dataclass(frozen=True)
class Alone:
    """How rows alone compare with the same rows in a batch. apart: the largest relative L2."""

    apart: float = 0.0
    text: str = ""
    problem: str | None = None


def rows_alone(
    chip: Chip, implementation: Implementation, case: Case, whole: Mapping[str, Any]
) -> Alone:
    """First, middle and last row. whole: what the batch gave.

    Two right results lie at most two limits apart.
    """
    count = row_count(case)
    if count < 2:
        return Alone()
    worst, limit = 0.0, 2 * bound_of(case, implementation)
    for row in sorted({0, count // 2, count - 1}):
        single = only(case, row)
        if implementation.declines(spec_of(chip, single)) is not None:
            return Alone(text="; a row alone is declined")
        found = run_case(chip, single, implementation).outcome
        apart = max(_apart(value[row : row + 1], found[name]) for name, value in whole.items())
        if apart > limit:
            text = f"row {row} alone lies {apart:.3g} from itself in the batch, limit {limit:.3g}"
            return Alone(apart, problem=text)
        worst = max(worst, apart)
    if worst == 0:
        return Alone(text=", a row alone the same to the bit")
    return Alone(worst, f", a row alone lies {worst:.2g} away (limit {limit:.2g})")


def row_count(case: Case) -> int:
    """Rows that can be taken alone; 0 where there are none, or they share what is written."""
    signature = CATALOGUE[case.op]
    outputs = {a.shape.split(",")[0] for a in signature.outputs}
    if signature.writes or len(outputs) != 1 or not outputs <= set(ROWS):
        return 0
    first = next(a.name for a in signature.inputs if a.shape.split(",")[0] in outputs)
    return len(case.inputs[first])


def only(case: Case, row: int) -> Case:
    """The call of one row."""
    inputs = dict(case.inputs)
    for arg in CATALOGUE[case.op].inputs:
        if arg.shape.split(",")[0] in ROWS and inputs.get(arg.name) is not None:
            inputs[arg.name] = inputs[arg.name][row : row + 1]
    if "page_table" in inputs:
        inputs |= _one_sequence(case, row)
    if case.op == "adjust_logits":  # entries of other rows become padding
        inputs["rows"] = np.where(inputs["rows"] == row, 0, -1).astype(np.int32)
    return replace(case, inputs=inputs, control=None, name=f"row {row} of {case.name}")


def _one_sequence(case: Case, row: int) -> dict[str, Array]:
    """A batch of the row's sequence alone."""
    sequence = int(case.inputs["token_rows"][row])
    return {
        "page_table": case.inputs["page_table"][sequence : sequence + 1],
        "kv_lens": case.inputs["kv_lens"][sequence : sequence + 1],
        "cu_q": np.array([0, 1], np.int32),
        "token_rows": np.zeros(1, np.int32),
    }


def _apart(a: Array, b: Array) -> float:
    if a.tobytes() == b.tobytes():
        return 0.0
    return relative_l2(a, b) if is_float(a) else float("inf")
