"""Caches of one byte an element on every instruction set: the oracle's bytes, and its attention."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import same_bits

from anychip.conform.operator_cases import Types, fitted, typed
from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import cases
from anychip.ops.cases.attention import Heads, Ragged, attention_inputs
from anychip.ops.cases.draw import draw
from anychip.ops.check import check_case
from anychip.ops.oracle.scaled import in_dtype
from anychip.ops.placed import place
from scaled_rows import SCALED, assert_bytes_are_the_oracles

F32 = DType.FLOAT32


def computed(chip, op, inputs, attrs):
    """What the chip's own kernel gives."""
    (kernel,) = (i for i in chip.operators.of(op) if i.id.endswith(f".{op}"))
    with place(chip, op, inputs, attrs) as placed:
        assert kernel.declines(placed.call.spec) is None
        placed.poison()
        placed.prepare(kernel)()
        assert placed.damaged() is None
        return placed.outcome()


@pytest.mark.parametrize("dtype", SCALED)
@pytest.mark.parametrize("op", ["kv_write", "kv_copy_pages", "paged_attention", "sink_attention"])
def test_every_case_agrees_with_the_oracle(each, op, dtype):
    activation = F32 if dtype is DType.INT8 else DType.BFLOAT16
    types = Types(activation, activation, dtype)
    found = [fitted(each.chip, typed(case, types)) for case in cases(op)]
    assert sum(case is not None for case in found) >= 3
    for case in filter(None, found):
        verdict = check_case(case, computed(each.chip, op, case.inputs, case.attrs))
        assert verdict.ok and (case.control is None or verdict.conclusive), verdict.text


@pytest.mark.parametrize("dtype", SCALED)
@pytest.mark.parametrize("dim", [4, 20, 64])
def test_bytes_are_the_oracle_s_for_numbers_of_every_size(each, dim, dtype):
    assert_bytes_are_the_oracles(
        lambda inputs: computed(each.chip, "kv_write", inputs, {})["cache"], dim, dtype
    )


@pytest.mark.parametrize("dtype", SCALED)
def test_a_token_s_bits_depend_on_its_position_alone(each, dtype):
    """600 positions are three segments, computed one by one where there are few tokens."""
    heads, length = Heads(4, 2, 32), 600
    inputs = attention_inputs(draw("scaled"), Ragged((40,), (length,), 16), heads)
    inputs["cache"] = in_dtype(inputs["cache"], NUMPY_DTYPES[dtype])
    attrs = {"scale": 0.2}
    whole = computed(each.chip, "paged_attention", inputs, attrs)["y"]
    per_token = ("q", "positions", "token_rows")
    for first, last in ((0, 1), (39, 40), (3, 30)):
        part = {**inputs, **{n: inputs[n][first:last] for n in per_token}}
        part["cu_q"] = np.array([0, last - first], np.int32)
        part["kv_lens"] = np.array([length - 40 + last], np.int32)
        assert same_bits(
            computed(each.chip, "paged_attention", part, attrs)["y"], whole[first:last]
        )
