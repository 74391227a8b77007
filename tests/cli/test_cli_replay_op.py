"""`anychip replay-op`: what a user sees of a saved call, on right chips and on a wrong one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import crooked_chip
from anychip.__main__ import main
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.weights import HostWeight
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import cases
from anychip.ops.check import outcome
from anychip.ops.oracle import CacheArrays, filled
from anychip.ops.saved import SavedCall, save

WRONG = "--chip-option=wrong=rms_norm"
OLD = {"version of numpy": "1.0", "chip": "crooked", "step": "7"}


@pytest.fixture(scope="module", autouse=True)
def crooked(tmp_path_factory):
    with crooked_chip.installed(tmp_path_factory.mktemp("site")):
        yield


def call_of(op: str, **changes) -> SavedCall:
    """The operator's largest case in bfloat16, its outputs right."""
    case = max(cases(op), key=lambda c: sum(np.size(v) for v in c.inputs.values() if v is not None))
    case = case.with_dtype(DType.BFLOAT16)
    found = outcome(op, case.inputs, case.attrs)
    held = {n: a if isinstance(a, CacheArrays) or a.dtype != np.float64
            else a.astype(NUMPY_DTYPES[DType.BFLOAT16]) for n, a in found.items()}  # fmt: skip
    call = SavedCall(
        op=op,
        attrs=filled(op, case.attrs),
        inputs={a.name: case.inputs.get(a.name) for a in CATALOGUE[op].inputs},
        outputs=held,
        dtype=DType.BFLOAT16,
        implementation=f"fake.{op}",
        verdict="what was said",
        seen_on={"chip": "crooked"},
    )
    return dataclasses.replace(call, **changes)


def kept(tmp_path: Path, call: SavedCall) -> str:
    path = tmp_path / "call.npz"
    save(path, call)
    return str(path)


def rows(capsys) -> dict[str, dict]:
    found = json.loads(capsys.readouterr().out)["rows"]
    return {row["implementation"]: row for row in found if row["kind"] != "as saved"}


@pytest.mark.parametrize("backend", ["fake", "cpu"])
@pytest.mark.parametrize("op", ["rms_norm", "add_rms_norm", "paged_attention", "kv_write"])
def test_sound_chip_agrees_natively_and_composed(op, backend, tmp_path, capsys) -> None:
    assert main(["replay-op", kept(tmp_path, call_of(op)), "--backend", backend, "--json"]) == 0
    found = rows(capsys)
    assert "composed" in found
    assert any(row["kind"] == "native" for row in found.values())
    assert all(row["ok"] for row in found.values())


def test_primitive_has_no_recipe(tmp_path, capsys) -> None:
    file = kept(tmp_path, call_of("exp"))
    assert main(["replay-op", file, "--backend", "fake", "--json"]) == 0
    assert list(rows(capsys)) == ["fake.exp"]


def test_wrong_implementation_diverges_and_its_recipe_does_not(tmp_path, capsys) -> None:
    file = kept(tmp_path, call_of("rms_norm"))
    assert main(["replay-op", file, "--backend", "crooked", WRONG]) == 1
    out, err = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if "worst first" in line]
    assert line.startswith("fake.rms_norm (native)")
    assert "expected" in line
    assert "what was said" in out
    assert "fake.rms_norm diverges or does not run on crooked" in err
    command = ["replay-op", file, "--backend", "crooked", WRONG, "--implementation"]
    assert main([*command, "composed"]) == 0
    assert main([*command, "fake.rms_norm"]) == 1


def test_saved_outputs_are_judged_again(tmp_path, capsys) -> None:
    wrong = {"y": np.full_like(call_of("rms_norm").outputs["y"], 3)}
    file = kept(tmp_path, call_of("rms_norm", outputs=wrong, seen_on=OLD))
    assert main(["replay-op", file, "--backend", "fake", "--json"]) == 0
    (row,) = [r for r in json.loads(capsys.readouterr().out)["rows"] if r["kind"] == "as saved"]
    assert not row["ok"]
    assert row["differences"][0]["found"] == 3
    assert main(["replay-op", file, "--backend", "fake"]) == 0
    assert "it was saved on crooked, this is fake" in capsys.readouterr().out
    assert main(["replay-op", file, "--backend", "crooked"]) == 0
    text = "agrees here: the kernel or its version has changed since (version of numpy: 1.0 then, "
    assert text in capsys.readouterr().out
    assert main(["replay-op", file, "--backend", "crooked", WRONG]) == 1
    assert "agrees here" not in capsys.readouterr().out


def test_index_into_nowhere_never_reaches_the_chip(tmp_path, capsys) -> None:
    call = call_of("embedding")
    beyond = {**call.inputs, "tokens": call.inputs["tokens"] + 10**6}
    file = kept(tmp_path, dataclasses.replace(call, inputs=beyond))
    assert main(["replay-op", file, "--backend", "cpu"]) == 2
    assert "the oracle cannot compute the saved 'embedding'" in capsys.readouterr().err


def with_weight(format: str) -> SavedCall:
    """x @ w.T where each block of w is scale 0.5 and elements 2."""
    raw = np.tile(np.frombuffer(np.float16(0.5).tobytes() + b"\x02" * 32, np.uint8), 8)
    part = HostWeight(format, (4, 64), raw.data)
    call = call_of("linear")
    x = np.ones((3, 64), np.float32)
    inputs = {n: None for n in call.inputs if n != "weight"} | {"x": x}
    outputs = {"y": np.full((3, 4), 64, np.float32)}
    return dataclasses.replace(
        call, inputs=inputs, outputs=outputs, parts={"weight": (part,)}, dtype=DType.FLOAT32
    )


def test_packed_weight_is_packed_again(tmp_path, capsys) -> None:
    assert main(["replay-op", kept(tmp_path, with_weight("q8_0")), "--json"]) == 0
    out = json.loads(capsys.readouterr().out)["rows"]
    assert any(row["kind"] == "native" and row["ok"] for row in out)
    assert all(row["ok"] for row in out if row["verdict"])
    (composed,) = [row for row in out if row["kind"] == "composed"]
    assert "does not cover the call" in composed["note"]


def test_chip_without_the_format_says_so(tmp_path, capsys) -> None:
    assert main(["replay-op", kept(tmp_path, with_weight("q8_0")), "--backend", "fake"]) == 2
    assert "does not take 'weight' in q8_0; it takes float32" in capsys.readouterr().err


def test_chip_that_does_not_cover_the_call_says_why(tmp_path, capsys) -> None:
    call = call_of("rms_norm")
    inputs = {n: v.astype(np.float16) if n == "x" else v for n, v in call.inputs.items()}
    outputs = {"y": call.outputs["y"].astype(np.float16)}
    call = dataclasses.replace(call, inputs=inputs, outputs=outputs, dtype=DType.FLOAT16)
    file = kept(tmp_path, call)
    assert main(["replay-op", file, "--backend", "cpu", "--json"]) == 0  # its recipe covers it
    found = rows(capsys)
    (native,) = [name for name, row in found.items() if row["kind"] == "native"]
    assert found[native]["note"].startswith("does not cover the call: no dtype row")
    assert main(["replay-op", file, "--backend", "cpu", "--implementation", native]) == 1
    out, err = capsys.readouterr()
    assert "does not cover the call: no dtype row" in out
    assert f"{native} diverges or does not run" in err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["no-such.npz"], 2, "no-such.npz: cannot be read: No such file"),
        ([], 2, "FILE"),
        (["FILE", "--backend", "nope"], 2, "no chip 'nope' is installed"),
        (["FILE", "--backend", "fake", "--chip-option", "x=1"], 2, "has no option 'x'"),
        (["FILE", "--device-index", "no"], 2, "--device-index: 'no' is not a whole number"),
        (
            ["FILE", "--backend", "fake", "--implementation", "x"],
            2,
            "has no 'x' for 'rms_norm'; it has: fake.rms_norm, composed",
        ),
        (["FILE", "--page-size", "1"], 2, "--page-size is a flag of `anychip serve`"),
    ],
)
def test_errors_are_one_line(words, code, text, tmp_path, capsys) -> None:
    file = kept(tmp_path, call_of("rms_norm"))
    assert main(["replay-op", *(file if word == "FILE" else word for word in words)]) == code
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1
