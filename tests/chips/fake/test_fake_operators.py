"""Every operator of the strict chip (so every one of hostops) against the oracle."""

from __future__ import annotations

import pytest
import strict_calls

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.signature import Tier
from anychip.ops.cases import cases
from anychip.ops.check import check_case

SERVED = sorted(n for n, s in CATALOGUE.items() if s.tier is not Tier.FUSED)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16])
@pytest.mark.parametrize("op", SERVED)
def test_operator_agrees_with_the_oracle(op, dtype):
    chip = strict_calls.opened()
    ran = 0
    for case in (c.with_dtype(dtype) for c in cases(op)):
        impl, call = strict_calls.prepared(chip, op, case.inputs, case.attrs)
        assert impl.declines(call.spec) is None, (case.name, impl.declines(call.spec))
        impl.prepare(call)()
        verdict = check_case(case, strict_calls.results(chip, call))
        assert verdict.ok, f"{case.name}: {verdict.text}"
        ran += 1
    assert ran


def test_table_holds_every_operator_but_the_fused_ones():
    chip = strict_calls.opened()
    assert sorted(i.op for i in chip.operators.implementations) == SERVED


def test_primitives_alone():
    chip = strict_calls.opened(primitives_only=True)
    tiers = {CATALOGUE[i.op].tier for i in chip.operators.implementations}
    assert tiers == {Tier.PRIMITIVE}


def test_operators_left_out():
    chip = strict_calls.opened(without="linear, softmax")
    assert not chip.operators.of("linear") and not chip.operators.of("softmax")
    assert chip.operators.of("lm_head")
