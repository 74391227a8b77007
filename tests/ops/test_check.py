"""The checker: right results pass, each kind of wrong one does not."""

from __future__ import annotations

import numpy as np
import pytest
from eager import FLOATS

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import Case, cases
from anychip.ops.check import check_case, compare, outcome, relative_l2, result_dtype
from anychip.ops.limits import limit
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.arrays import is_float

ALL = sorted(CATALOGUE)


def held(case, inputs=None, attrs=None):
    """The oracle's results in the dtype that a chip would hold them in."""
    found = outcome(case.op, {**case.inputs, **(inputs or {})}, {**case.attrs, **(attrs or {})})
    target = NUMPY_DTYPES[result_dtype(case)]
    return {
        n: v if isinstance(v, CacheArrays) or not is_float(v) else v.astype(target)
        for n, v in found.items()
    }


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ALL)
def test_rounded_oracle_passes_and_every_control_fails(op, dtype):
    for case in cases(op):
        case = case.with_dtype(dtype)
        verdict = check_case(case, held(case))
        assert verdict.ok, f"{case.name}: {verdict.text}"
        if case.control is not None:
            assert verdict.conclusive, f"{case.name}: {verdict.text}"
            wrong = check_case(case, held(case, case.control.inputs, case.control.attrs))
            assert not wrong.ok, f"{case.name}: {wrong.text}"


@pytest.mark.parametrize("op", ALL)
def test_a_control_is_found_for_calls_that_bring_none(op):
    for case in cases(op):
        if case.control is None:
            continue
        verdict = compare(op, case.inputs, case.attrs, held(case), result_dtype(case))
        assert verdict.ok
        assert verdict.conclusive or op == "arange", f"{case.name}: {verdict.text}"


def rms_norm():
    return next(c for c in cases("rms_norm") if c.name == "7x576").with_dtype(DType.BFLOAT16)


def test_one_wrong_row_among_many_is_seen():
    rows = np.random.default_rng(3).normal(size=(5000, 64))
    wrong = rows.copy()
    wrong[77] *= 1.1
    assert relative_l2(rows, wrong) == pytest.approx(0.1, rel=0.3)


def test_poison_that_was_not_overwritten_is_seen():
    case, outputs = rms_norm(), held(rms_norm())
    outputs["y"][3, 5] = np.nan
    assert check_case(case, outputs).relative_l2 == np.inf


def test_a_wrong_shape_is_seen():
    case, outputs = rms_norm(), held(rms_norm())
    assert not check_case(case, {"y": outputs["y"][:-1]}).ok


def test_a_missing_output_is_an_error():
    case = next(c for c in cases("add_rms_norm") if c.name == "3x33")
    with pytest.raises(KeyError, match="sum"):
        check_case(case, {"y": held(case)["y"]})


def test_the_text_names_operator_output_and_numbers():
    case = next(c for c in cases("add_rms_norm") if c.name == "3x33")
    outputs = held(case)
    outputs["sum"] = outputs["sum"] * np.float32(2)
    text = check_case(case, outputs).text
    assert "add_rms_norm diverges" in text
    assert "'sum' 1" in text


def test_a_write_to_a_neighbour_slot_is_seen():
    case = next(c for c in cases("kv_write") if c.name == "scattered")
    outputs = held(case)
    cache = outputs["cache"]
    touched = set(case.inputs["slots"].tolist())
    neighbour = next(s for s in range(20) if s not in touched)
    cache.v.reshape(20, 3, 64)[neighbour, 2, 63] += 1
    assert not check_case(case, outputs).ok


def test_argmax_of_a_later_tie_is_wrong():
    x = np.array([[0, 2, 2]], dtype=np.float32)
    args = ("argmax", {"x": x}, {})
    assert compare(*args, {"y": np.array([1], np.int32)}, DType.FLOAT32).ok
    assert not compare(*args, {"y": np.array([2], np.int32)}, DType.FLOAT32).ok


def border_case(noise):
    """Two tokens of one half each."""
    one = np.ones(1, np.float32)
    inputs = {
        "logits": np.zeros((1, 2), np.float32),
        "temperature": one,
        "top_k": np.zeros(1, np.int32),
        "top_p": one,
        "min_p": one * 0,
        "noise": np.array([noise], np.float32),
    }
    return Case("sample", "border", inputs)


@pytest.mark.parametrize(("noise", "other_is_fine"), [(0.5, True), (0.4999999, True), (0.4, False)])
def test_sample_may_round_at_a_border_and_only_there(noise, other_is_fine):
    case = border_case(noise)
    right = held(case)["tokens"]
    assert check_case(case, {"tokens": right}).ok
    assert check_case(case, {"tokens": 1 - right}).ok is other_is_fine


def test_limits_grow_with_roundoff_and_terms():
    def of(width, dtype):
        return limit("linear", {"x": np.zeros((1, width))}, dtype)

    assert of(64, DType.FLOAT32) < of(4096, DType.FLOAT32) < of(64, DType.FLOAT16)
    assert of(64, DType.FLOAT16) < of(64, DType.BFLOAT16)


def test_rounding_of_numbers_too_small_to_be_normal_is_no_divergence():
    """float16 has steps of 2**-24 below 2**-14, whatever the numbers' size."""
    x = np.full((1, 8), 3e-3, np.float16)
    sound = outcome("silu_and_mul", {"x": x}, {})["y"].astype(np.float16)
    assert 0 < sound.max() < 2.0**-14
    assert compare("silu_and_mul", {"x": x}, {}, {"y": sound}, DType.FLOAT16).ok
    off = np.nextafter(np.nextafter(sound, np.float16(1)), np.float16(1))
    off = np.nextafter(off, np.float16(1))
    assert not compare("silu_and_mul", {"x": x}, {}, {"y": off}, DType.FLOAT16).ok
