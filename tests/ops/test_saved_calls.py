"""Files of saved operator calls: they come back as they were, and what is damaged is refused."""

from __future__ import annotations

import dataclasses
import json
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.formats import BLOCK_FORMATS, W8A8
from anychip.model.quantize import quantize
from anychip.ops.cases import cases
from anychip.ops.check import result_dtype
from anychip.ops.oracle import CacheArrays, filled
from anychip.ops.saved import SavedCall, SavedCallError, load, save


def saved_case(case, **changes) -> SavedCall:
    """A case as a saved call whose outputs are the oracle's."""
    result = case.expected()
    names = [a.name for a in CATALOGUE[case.op].outputs]
    outputs = {**dict(zip(names, result.outputs, strict=True)), **result.written}
    for name, array in outputs.items():
        if getattr(array, "dtype", None) == np.float64:
            outputs[name] = array.astype(np.float32)
    call = SavedCall(
        op=case.op,
        attrs=filled(case.op, case.attrs),
        inputs={a.name: case.inputs.get(a.name) for a in CATALOGUE[case.op].inputs},
        outputs=outputs,
        dtype=result_dtype(case),
        implementation="some.id",
        verdict="text",
        seen_on={"chip": "some"},
    )
    return dataclasses.replace(call, **changes)


def same_values(a, b) -> bool:
    if isinstance(a, CacheArrays):
        return same_values(a.k, b.k) and same_values(a.v, b.v)
    if a is None or b is None:
        return a is b
    strides = a.size == 0 or a.strides == b.strides or a.flags.c_contiguous
    return a.dtype == b.dtype and a.shape == b.shape and strides and a.tobytes() == b.tobytes()


def same_calls(a: SavedCall, b: SavedCall) -> bool:
    for left, right in ((a.inputs, b.inputs), (a.outputs, b.outputs)):
        if left.keys() != right.keys() or not all(same_values(left[n], right[n]) for n in left):
            return False
    parts = [{n: [(p.format, p.shape, bytes(p.data)) for p in ps] for n, ps in c.parts.items()}
             for c in (a, b)]  # fmt: skip
    facts = [(c.op, dict(c.attrs), c.dtype, c.implementation, c.verdict, c.seen_on) for c in (a, b)]
    return parts[0] == parts[1] and facts[0] == facts[1]


@pytest.mark.parametrize("op", CATALOGUE)
def test_every_operator_comes_back_as_it_was_saved(op: str, tmp_path) -> None:
    dtypes = (DType.FLOAT32, DType.BFLOAT16)
    for number, case in enumerate(c.with_dtype(d) for c in cases(op) for d in dtypes):
        path = tmp_path / f"{number}.npz"
        call = saved_case(case)
        save(path, call)
        assert same_calls(call, load(path)), case.name


def packed_call(format: str) -> SavedCall:
    case, rng = next(c for c in cases("linear") if c.inputs["x"].shape[0]), draw(3)
    x, parts = rng(5, 256), tuple(quantize(rng(8, 256), format) for _ in range(2))
    call = saved_case(case)
    return dataclasses.replace(
        call,
        inputs={"x": x, **{n: None for n in call.inputs if n not in ("x", "weight")}},
        outputs={"y": np.zeros((5, 16), np.float32)},
        parts={"weight": parts},
    )


def draw(seed: int) -> Callable[..., np.ndarray]:
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape, np.float32)


@pytest.mark.parametrize("format", [*BLOCK_FORMATS, *W8A8, "u4g128", "u8g32o"])
def test_packed_weights_come_back_byte_by_byte(format: str, tmp_path) -> None:
    call = packed_call(format)
    save(tmp_path / "call.npz", call)
    assert same_calls(call, load(tmp_path / "call.npz"))


def test_file_is_never_overwritten_and_numpy_reads_it_without_pickle(tmp_path) -> None:
    path, call = tmp_path / "call.npz", saved_case(cases("rms_norm")[0])
    save(path, call)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # it holds what users wrote
    with pytest.raises(FileExistsError):
        save(path, call)
    with np.load(path, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["in.x"], call.inputs["x"])
        assert json.loads(arrays["call.json"])["op"] == "rms_norm"


def damaged(path: Path, call: SavedCall) -> None:
    """The file is refused in words, or what it gives is what was saved."""
    try:
        found = load(path)
    except SavedCallError as error:
        assert str(path) in str(error)
    else:
        assert same_calls(call, found)


def test_damaged_files_are_refused_or_right(tmp_path) -> None:
    path, call = tmp_path / "call.npz", packed_call("q4_1")
    save(path, call)
    whole = path.read_bytes()
    for length in range(0, len(whole), 100):
        path.write_bytes(whole[:length])
        with pytest.raises(SavedCallError):
            load(path)
    rng = random.Random(5)
    tail = range(len(whole) - 2000, len(whole))  # zip's own tables
    for place in [*rng.sample(range(len(whole)), 400), *rng.sample(tail, 400)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        damaged(path, call)


def rewritten(path: Path, **members: bytes | None) -> None:
    """The same zip with members replaced or (None) left out."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    path.unlink()
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in {**held, **members}.items():
            if raw is not None:
                archive.writestr(name, raw)


def edited(path: Path, **changes) -> None:
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("call.json"))
    rewritten(path, **{"call.json": json.dumps({**header, **changes}).encode()})


HELD = {"dtype": "float32", "shape": [2, 4]}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": 2}, "version 2, this anychip reads version 1"),
        ({"version": None}, "version None"),
        ({"op": "levitate"}, "no operator 'levitate'"),
        ({"signature": "0" * 16}, "signature of 'silu_and_mul' has changed"),
        ({"dtype": "complex64"}, "complex64"),
        ({"surprise": 1}, "surprise"),
        ({"arrays": {"in.x": {**HELD, "shape": [1 << 40, 1 << 40]}}}, "'in.x' needs"),
        ({"arrays": {"in.x": {**HELD, "shape": [-2, -4]}}}, "shape"),
        ({"arrays": {"in.x": {**HELD, "strides": [1 << 40, 1]}}}, "spans"),
        ({"arrays": {"in.x": {**HELD, "strides": [-1, 1]}}}, "strides"),
        ({"arrays": {"in.y": HELD}}, "'x' is missing"),
        ({"parts": {"x": [{"format": "float32", "shape": [2, 4]}]}}, "'x' is no weight"),
        ({"dtype": "int32"}, "results in int32"),
        ({"arrays": {"in.x": HELD}}, "result 'y' has shape None, not (2, 2)"),
        ({"arrays": {"in.x": HELD, "out.y": {**HELD, "shape": [4]}}}, "has shape (4,), not (2, 2)"),
    ],
)
def test_foreign_headers_are_refused(changes: dict, text: str, tmp_path) -> None:
    path = tmp_path / "call.npz"
    call = saved_case(next(c for c in cases("silu_and_mul") if c.inputs["x"].size))
    call = dataclasses.replace(
        call,
        inputs={"x": np.ones((2, 4), np.float32)},
        outputs={"y": np.ones((2, 2), np.float32)},
    )
    save(path, call)
    edited(path, **changes)
    with pytest.raises(SavedCallError, match=r"call\.npz") as refusal:
        load(path)
    assert text in str(refusal.value)


def test_weight_of_an_unknown_format_is_refused(tmp_path) -> None:
    path = tmp_path / "call.npz"
    save(path, packed_call("q4_1"))
    edited(path, parts={"weight": [{"format": "q9", "shape": [1, 32]}]})
    with pytest.raises(SavedCallError, match="unknown format 'q9'"):
        load(path)


def test_attribute_of_another_type_is_refused(tmp_path) -> None:
    path = tmp_path / "call.npz"
    save(path, saved_case(cases("rms_norm")[0]))
    edited(path, attrs={"eps": 5})
    with pytest.raises(SavedCallError, match="attribute 'eps' is 5, not a float"):
        load(path)


def test_attributes_that_json_cannot_hold_come_back(tmp_path) -> None:
    case = cases("fill")[0]
    attrs = {**filled("fill", case.attrs), "value": float("-inf")}
    save(tmp_path / "call.npz", saved_case(case, attrs=attrs))
    assert load(tmp_path / "call.npz").attrs == attrs


def test_bombs_pickles_and_strangers_are_refused(tmp_path) -> None:
    path = tmp_path / "call.npz"
    refused = []
    np.savez(path, x=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused.append(path.read_bytes())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("call.json", b" " * 10**7)
    refused.append(path.read_bytes())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("call.json", b"[" * 2_000_000)
    refused.append(path.read_bytes())
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            archive.writestr(str(number), b"")
    refused += [path.read_bytes(), b"", b"hello", b"\x93NUMPY\x01\x00"]
    for raw in refused:
        path.write_bytes(raw)
        with pytest.raises(SavedCallError, match="is no saved call, or is damaged"):
            load(path)
    for other in (tmp_path, tmp_path / "nothing.npz"):
        with pytest.raises(SavedCallError, match="cannot be read"):
            load(other)
