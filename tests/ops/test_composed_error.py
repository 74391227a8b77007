"""The composed path's own error: nothing where nothing rounds, large where a recipe is wrong."""

from __future__ import annotations

import pytest
from eager import FLOATS

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.ops.cases import cases
from anychip.ops.cases.grid import sized
from anychip.ops.check import check_case, result_dtype
from anychip.ops.composed_error import MULTIPLE, composed_error, error_limit
from anychip.ops.limits import EXACT, ROUNDOFF
from anychip.ops.on_numpy import NumpyOps, by_hostops, run_on_numpy


def forgets_a_term(op, inputs, outputs, attrs):
    """Products whose last column of `a` is left out."""
    if op in ("matmul", "batched_matmul"):
        inputs = {**inputs, "a": inputs["a"].copy()}
        inputs["a"][..., -1] = 0
    by_hostops(op, inputs, outputs, attrs)


def test_a_copy_has_none_and_a_rounded_norm_has_some():
    assert composed_error(sized("copy")) == 0
    error = composed_error(sized("rms_norm").with_dtype(DType.BFLOAT16))
    assert 0 < error <= ROUNDOFF[DType.BFLOAT16]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", sorted(EXACT))
def test_exact_operators_have_none(op, dtype):
    for case in cases(op):
        case = case.with_dtype(dtype)
        assert composed_error(case) == 0, case.name
        assert error_limit(case) == 0


def test_tokens_have_none():
    assert composed_error(sized("sample")) == 0


@pytest.mark.parametrize("op", ["linear", "paged_attention", "attention_block", "mlp_block"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_a_recipe_made_wrong_shows(op, dtype):
    case = sized(op).with_dtype(dtype)
    wrong = NumpyOps(forgets_a_term)
    assert composed_error(case, wrong) > 10 * composed_error(case)
    bound = error_limit(case)
    assert check_case(case, run_on_numpy(case), bound=bound).ok
    assert not check_case(case, run_on_numpy(case, wrong), bound=bound).ok


def test_a_bound_replaces_the_formula_both_ways():
    case = sized("rms_norm").with_dtype(DType.BFLOAT16)
    outputs = run_on_numpy(case)
    assert check_case(case, outputs, bound=0.5).limit == 0.5
    assert check_case(case, outputs).ok
    assert not check_case(case, outputs, bound=1e-9).ok


@pytest.mark.parametrize("op", sorted(set(CATALOGUE) - EXACT))
def test_a_limit_allows_at_least_a_rounding_of_the_result(op):
    for dtype in FLOATS:
        case = sized(op).with_dtype(dtype)
        assert error_limit(case) >= MULTIPLE * ROUNDOFF[result_dtype(case)]


def test_a_float16_limit_is_below_a_bfloat16_one():
    case = sized("linear", K=576)
    limits = [error_limit(case.with_dtype(d)) for d in (DType.FLOAT32, DType.FLOAT16)]
    assert limits == sorted(limits)
    assert limits[-1] < error_limit(case.with_dtype(DType.BFLOAT16))


def test_what_a_case_holds_is_left_alone():
    case = sized("kv_write")
    before = case.inputs["cache"].v.copy()
    run_on_numpy(case)
    assert (case.inputs["cache"].v == before).all()
