"""Recipes traced, bound and run: on primitives alone they equal the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from traced import PRIMITIVES, run_traced, table

from anychip.contract.dtype import DType
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from anychip.ops.compositions import COMPOSITIONS

TABLE = table(PRIMITIVES)


def is_empty(case):
    """No program is bound for no tokens: a bucket has at least one."""
    return any(isinstance(v, np.ndarray) and v.size == 0 for v in case.inputs.values())


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("op", sorted(COMPOSITIONS))
def test_traced_recipe_equals_oracle(op, dtype):
    for case in cases(op):
        if is_empty(case):
            continue
        case = case.with_dtype(dtype)
        outputs, used = run_traced(case, TABLE)
        verdict = check_case(case, outputs)
        assert verdict.ok, f"{case.name}: {verdict.text}"
        assert {i.partition(".")[2] for i in used} <= set(PRIMITIVES)
