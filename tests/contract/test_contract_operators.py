"""Operator tables and dtype rows; the lock file over all signatures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anychip.contract import fingerprint
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ContractError
from anychip.contract.operators import (
    CallSpec,
    DtypeRow,
    Implementation,
    OperatorTable,
    plain_only,
    uniform_row,
)
from anychip.contract.tensor import TensorSpec
from anychip.contract.version import CONTRACT
from anychip.contract.weights import WeightSpec

ROW = DtypeRow({"X": ("float32", "bfloat16"), "W": ("q4_1",)})


def linear(name="chip.linear", **changes):
    full = {"op": "linear", "id": name, "prepare": lambda call: lambda: None, "dtypes": (ROW,)}
    return Implementation(**{**full, **changes})


def call(x_type=DType.FLOAT32, weight_format="q4_1", bias=False):
    x, y = TensorSpec((3, 8), x_type), TensorSpec((3, 4), x_type)
    inputs = {"x": x, "weight": WeightSpec(weight_format, (4, 8), 0, dense=False)}
    inputs["bias"] = TensorSpec((4,), DType.FLOAT32) if bias else None
    return CallSpec("linear", inputs, {"y": y}, {})


def test_order_is_kept_and_operators_can_be_taken_out():
    cast = Implementation(
        op="cast",
        id="chip.cast",
        prepare=lambda call: lambda: None,
        dtypes=(DtypeRow({"A": ("float32",), "B": ("int32",)}),),
    )
    table = OperatorTable((linear("fast"), cast, linear("slow")))
    assert [i.id for i in table.of("linear")] == ["fast", "slow"]
    assert table.of("softmax") == ()
    assert [i.id for i in table.without(["linear"]).implementations] == ["chip.cast"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ((linear(op="lineer"),), "'lineer', which is not in the catalogue"),
        ((linear(), linear()), "'chip.linear' is there twice"),
        ((linear(dtypes=(DtypeRow({"X": ("float32",)}),)),), r"\['X'\].*\['W', 'X'\]"),
        ((linear(dtypes=(DtypeRow({}),)),), r"\['W', 'X'\]"),
        ((linear(aliases=(("y", "z"),)),), "not an output and an input"),
        ((linear(aliases=(("x", "y"),)),), "not an output and an input"),
    ],
)
def test_table_refuses(wrong, text):
    with pytest.raises(ContractError, match=text):
        OperatorTable(wrong)


def test_dtype_rows_decide_before_the_call():
    assert linear().declines(call()) is None
    assert linear().declines(call(DType.BFLOAT16, bias=True)) is None
    assert linear().declines(call(DType.FLOAT16)) == "no dtype row for W=q4_1, X=float16"
    assert "W=q8_0" in linear().declines(call(weight_format="q8_0"))


def test_a_variable_of_the_output_alone_counts():
    row = DtypeRow({"A": ("float32",), "B": ("int32",)})
    cast = linear("chip.cast", op="cast", dtypes=(row,))
    x = TensorSpec((2,), DType.FLOAT32)
    for dtype, covered in ((DType.INT32, True), (DType.FLOAT16, False)):
        spec = CallSpec("cast", {"x": x}, {"y": TensorSpec((2,), dtype)}, {"dtype": dtype.value})
        assert (cast.declines(spec) is None) is covered


def test_when_is_asked_after_the_dtypes():
    impl = linear(when=lambda call: "too many tokens" if call.inputs["x"].shape[0] > 2 else None)
    assert impl.declines(call()) == "too many tokens"
    assert "no dtype row" in impl.declines(call(DType.FLOAT16))


def test_packed_weights_are_declined_by_name_where_only_plain_ones_are_read():
    assert plain_only(call()) == "'weight' is packed as q4_1; only dense weights are read here"
    dense = replace(call(), inputs={"weight": WeightSpec("float32", (4, 8), 0, dense=True)})
    assert plain_only(dense) is None


def test_a_uniform_row_has_every_variable_and_caches_of_their_own():
    row = uniform_row(CATALOGUE["kv_write"], ("float32",), ("int8",))
    caches = {a.dtype for a in CATALOGUE["kv_write"].inputs if a.name == "cache"}
    assert {variable for variable, held in row.types.items() if held == ("int8",)} == caches
    assert OperatorTable((linear(dtypes=(uniform_row(CATALOGUE["linear"], ("a",), ()),)),))


def test_dtypes_of_a_call_name_formats_too():
    assert call(bias=True).dtypes() == {
        "x": "float32",
        "weight": "q4_1",
        "bias": "float32",
        "y": "float32",
    }


def test_lock_file_is_current():
    assert fingerprint.drift() == [], "write contract/operators.lock and contract/CHANGELOG.md"


def test_changed_signature_is_noticed(monkeypatch):
    changed = replace(CATALOGUE["linear"], writes=("x",))
    monkeypatch.setitem(CATALOGUE, "linear", changed)
    assert fingerprint.drift() == ["operator 'linear' differs from the lock file"]


def test_new_and_lost_operators_are_noticed(monkeypatch):
    monkeypatch.setitem(CATALOGUE, "new", replace(CATALOGUE["linear"], name="new"))
    monkeypatch.delitem(CATALOGUE, "softmax")
    assert [line.split("'")[1] for line in fingerprint.drift()] == ["new", "softmax"]


def test_documentation_is_free_to_change():
    linear_signature = CATALOGUE["linear"]
    reworded = replace(linear_signature, doc="other words")
    assert fingerprint.fingerprint(reworded) == fingerprint.fingerprint(linear_signature)


def test_lock_of_another_version_is_noticed(monkeypatch, tmp_path):
    old = json.loads(fingerprint.LOCK_FILE.read_text())
    path = tmp_path / "operators.lock"
    path.write_text(json.dumps({**old, "contract": "0.0"}))
    monkeypatch.setattr(fingerprint, "LOCK_FILE", path)
    assert "for contract 0.0" in fingerprint.drift()[0]


def test_changelog_tells_of_this_version():
    text = fingerprint.LOCK_FILE.with_name("CHANGELOG.md").read_text()
    assert f"## {CONTRACT[0]}.{CONTRACT[1]}" in text
