"""Borrowed operators: computed by another chip, right where the call's memory is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from anychip.chips.fake.registration import FakeChip
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import OperatorTable
from anychip.contract.registration import read_options
from anychip.contract.weights import HostWeight, WeightUse
from anychip.ops.borrowed import Borrowing, Lender, Pieces, WeightPairs
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from anychip.ops.decide import Decider, MissingOperator
from anychip.ops.placed import USES, place

OPS = sorted(op for op in CATALOGUE if cases(op))


def opened(**options: str) -> FakeChip:
    return FakeChip.open(0, read_options(FakeChip, options))


def copied(near: FakeChip, far: FakeChip, op: str) -> WeightPairs:
    """Weights that are read from one chip and prepared by the other."""
    uses = frozenset({USES.get(op, WeightUse.LINEAR)})

    def weight(own):
        raw = np.zeros(own.dense.nbytes, np.uint8)
        near.memory.copy_out(own.dense, raw.data)
        return far.weights.prepare((HostWeight(own.spec.format, own.spec.shape, raw.data),), uses)

    return WeightPairs(weight, lambda spec: (spec,))


@pytest.mark.parametrize("options", [{}, {"primitives_only": "true"}], ids=["native", "composed"])
@pytest.mark.parametrize("op", OPS)
def test_every_operator_can_be_borrowed_whoever_composes_it(op: str, options) -> None:
    near, far = opened(poison_seed="1"), opened(**options)
    lender = Lender(far, Decider(far.operators), near.memory, copied(near, far, op))
    for case in cases(op)[:3]:
        with place(near, op, case.inputs, case.attrs) as placed:
            assert lender.declines(placed.call.spec) is None
            placed.prepare(lender.lend(op))()
            verdict = check_case(case, placed.outcome())
            assert verdict.ok, f"{case.name}: {verdict.text}"
            assert placed.damaged() is None
    lender.release()


@pytest.fixture
def placed():
    near = opened()
    (case, *_) = cases("rms_norm")
    with place(near, "rms_norm", case.inputs, case.attrs) as found:
        yield found, near


def lender_of(near: FakeChip, **options: str) -> Lender:
    far = opened(**options)
    return Lender(far, Decider(far.operators), near.memory, copied(near, far, "rms_norm"))


def test_what_the_lender_lacks_is_declined_with_its_reason(placed) -> None:
    call, near = placed[0].call.spec, placed[1]
    lender = lender_of(near, primitives_only="true", without="rsqrt")
    assert "'rsqrt' is missing" in lender.declines(call)
    borrowing = Borrowing(Decider(near.operators), lender, frozenset({"rms_norm"}))
    with pytest.raises(MissingOperator, match="the lender declines"):
        borrowing(call)


def test_only_the_operators_that_are_named_are_borrowed(placed) -> None:
    call, near = placed[0].call.spec, placed[1]
    own, lender = Decider(near.operators), lender_of(near)
    assert Borrowing(own, lender)(call).name == "fake.rms_norm"
    assert Borrowing(own, lender, frozenset({"rms_norm"}))(call).name == "borrowed.rms_norm"


def test_a_piece_is_what_one_of_the_two_serves_in_one_piece(placed) -> None:
    call, near = placed[0].call.spec, placed[1]
    lean = Decider(OperatorTable(tuple(i for i in near.operators.of("mul"))))
    whole = Pieces(lean, lender_of(near))
    assert not whole(call).composed
    assert whole.served == {"rms_norm": {"composed": None}}
    assert Pieces(lean, lender_of(near, primitives_only="true"))(call).composed
    assert Pieces(lean, lender_of(near), frozenset({"rms_norm"}))(call).composed


@pytest.mark.parametrize(
    ("change", "text"),
    [({"page_size": 5}, "pages of 5 in layout NHD"), ({"layout": "OWN"}, "in layout OWN")],
)
def test_cache_that_the_lender_would_not_have_is_declined(change, text: str) -> None:
    near = opened()
    (case, *_) = cases("kv_write")
    with place(near, "kv_write", case.inputs, case.attrs) as found:
        call = found.call.spec
    cache = call.inputs["cache"]
    other = dataclasses.replace(cache, group=dataclasses.replace(cache.group, **change))
    asked = dataclasses.replace(call, inputs={**call.inputs, "cache": other})
    assert text in lender_of(near).declines(asked)
