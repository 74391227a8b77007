"""Binding, first half: user's choice, native, composed, host; a missing operator is named."""

from __future__ import annotations

import dataclasses

import pytest

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec, DtypeRow, Implementation, OperatorTable
from anychip.contract.signature import infer_outputs
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import WeightSpec
from anychip.ops.decide import Decider, MissingOperator, UnknownImplementation
from anychip.ops.host import host_table
from anychip.ops.record import Recorder


def never(call):
    raise AssertionError("deciding prepares nothing")


def call(op: str, inputs: dict, **attrs) -> CallSpec:
    outs = infer_outputs(CATALOGUE[op], inputs, attrs)
    names = [a.name for a in CATALOGUE[op].outputs]
    return CallSpec(op, inputs, dict(zip(names, outs, strict=True)), attrs)


def rms_norm(rows: int = 4, dtype: DType = DType.FLOAT32) -> CallSpec:
    inputs = {"x": TensorSpec((rows, 8), dtype), "weight": TensorSpec((8,), DType.FLOAT32)}
    return call("rms_norm", inputs, eps=1e-5)


def native(ident: str, **more) -> Implementation:
    rows = (DtypeRow({"X": ("float32",)}),)
    return Implementation(op="rms_norm", id=ident, prepare=never, dtypes=rows, **more)


def few_rows(spec: CallSpec) -> str | None:
    rows = spec.inputs["x"].shape[0]
    return None if rows < 1024 else f"{rows} rows, at most 1023"


TABLE = OperatorTable((native("a.norm", when=few_rows), native("b.norm")))


def test_first_native_that_covers_serves() -> None:
    decide = Decider(TABLE)
    assert decide(rms_norm(1023)).name == "a.norm"
    large = decide(rms_norm(1024))
    assert large.name == "b.norm"
    assert large.why == ("a.norm declines: 1024 rows, at most 1023",)


def test_uncovered_dtype_is_composed_and_says_why() -> None:
    decision = Decider(TABLE)(rms_norm(4, DType.BFLOAT16))
    assert decision.composed
    assert any("no dtype row for X=bfloat16" in why for why in decision.why)


def test_user_choice_wins() -> None:
    assert Decider(TABLE, {"rms_norm": "b.norm"})(rms_norm()).name == "b.norm"
    assert Decider(TABLE, {"rms_norm": "composed"})(rms_norm()).composed
    with pytest.raises(MissingOperator, match=r"not covered.*at most 1023.*Leave that --op out"):
        Decider(TABLE, {"rms_norm": "a.norm"})(rms_norm(2000))


@pytest.mark.parametrize(
    ("op", "choice", "text"),
    [
        ("norm", "a.norm", "no operator 'norm'"),
        ("rms_norm", "c.norm", "a.norm, b.norm, composed"),
        ("exp", "composed", "'exp' can be served by nothing"),
    ],
)
def test_unknown_choices_are_refused(op: str, choice: str, text: str) -> None:
    with pytest.raises(UnknownImplementation, match=text):
        Decider(TABLE, {op: choice})


def test_missing_primitive_is_named_with_the_way_out() -> None:
    exp = call("exp", {"x": TensorSpec((3,), DType.FLOAT32)})
    with pytest.raises(MissingOperator, match=r"operator 'exp' is missing.*--allow-host-ops"):
        Decider(TABLE)(exp)
    assert Decider(TABLE, host=host_table())(exp).name == "host.exp"


def test_recipe_needs_plain_weights() -> None:
    packed = WeightSpec("q8_0", (4, 32), 136, dense=False)
    inputs = {"x": TensorSpec((2, 32), DType.FLOAT32), "weight": packed, "bias": None}
    with pytest.raises(MissingOperator, match="'weight' as a plain tensor"):
        Decider(TABLE)(call("linear", inputs))
    plain = dataclasses.replace(packed, format="float32", dense=True)
    assert Decider(TABLE)(call("linear", {**inputs, "weight": plain})).composed


def test_recorder_goes_on_and_lists_everything() -> None:
    recorder = Recorder(Decider(TABLE))
    exp = call("exp", {"x": TensorSpec((3,), DType.FLOAT32)})
    for spec in (rms_norm(), rms_norm(2000), exp, exp):
        recorder(spec)
    rows = {(s.op, s.implementation): (s.kind, s.calls) for s in recorder.served()}
    assert rows == {
        ("exp", "missing"): ("missing", 2),
        ("rms_norm", "a.norm"): ("native", 1),
        ("rms_norm", "b.norm"): ("native", 1),
    }
    assert recorder.missing == ["exp"]
