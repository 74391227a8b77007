"""The cases: complete, deterministic, and sharp enough to see every attribute."""

from __future__ import annotations

import numpy as np
import pytest
from eager import FLOATS, _wrapped

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.signature import infer_outputs
from anychip.ops.cases import cases
from anychip.ops.oracle import filled

SHAPES_ONLY = {"dtype", "shape", "length", "bins", "k", "n", "heads"} | {
    *("experts_count", "value_dim", "nope_dim"),
}
"""Attributes that change what the outputs look like: `infer` covers them."""

ALL = sorted(CATALOGUE)


def effects(op):
    controls = [c.control for c in cases(op) if c.control is not None]
    return {n for c in controls for n in (*c.inputs, *c.attrs)}


@pytest.mark.parametrize("op", ALL)
def test_every_attribute_and_optional_input_has_a_control(op):
    signature = CATALOGUE[op]
    wanted = {a.name for a in signature.attrs} - SHAPES_ONLY
    wanted |= {a.name for a in signature.inputs if a.optional}
    assert wanted <= effects(op)


@pytest.mark.parametrize("op", ALL)
def test_cases_fit_the_signature_in_every_dtype(op):
    signature = CATALOGUE[op]
    for case in cases(op):
        for dtype in FLOATS:
            other = case.with_dtype(dtype)
            given = {a.name: _wrapped(a, other.inputs.get(a.name)) for a in signature.inputs}
            specs = {n: None if v is None else v.spec for n, v in given.items()}
            inferred = infer_outputs(signature, specs, filled(op, other.attrs))
            found = other.expected().outputs
            assert [s.shape for s in inferred] == [y.shape for y in found], case.name


@pytest.mark.parametrize("op", ALL)
def test_cases_are_the_same_every_time(op):
    names = [c.name for c in cases(op)]
    assert len(set(names)) == len(names)
    for first, second in zip(cases(op), cases(op), strict=True):
        for name, value in first.inputs.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, second.inputs[name])


@pytest.mark.parametrize("op", sorted(set(ALL) - {"fill", "arange"}))
def test_one_case_is_empty(op):
    arrays = [a for c in cases(op) for a in c.inputs.values() if isinstance(a, np.ndarray)]
    assert any(a.size == 0 for a in arrays)


def test_another_dtype_keeps_strides():
    case = next(c for c in cases("linear") if c.name == "rows apart")
    other = case.with_dtype(DType.BFLOAT16)
    before, after = case.inputs["x"], other.inputs["x"]
    assert [s // 4 for s in before.strides] == [s // 2 for s in after.strides]
    np.testing.assert_allclose(after.astype(np.float32), before, rtol=2**-8)
    assert other.inputs["weight"].dtype == after.dtype
    assert other.control.inputs["x"].dtype == after.dtype
