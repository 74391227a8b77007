"""Random operands for the calls of a program: what an operator may be given, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tiny_models
from anychip.config import ServeConfig
from anychip.contract.cache import HND, NHD, CacheGroup, CacheSpec
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec
from anychip.contract.signature import ArgKind, infer_outputs
from anychip.contract.tensor import TensorSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.check import outcome
from anychip.ops.drawn import CONTEXT, drawn
from anychip.ops.oracle.arrays import CacheArrays
from anychip.run.plan_run import open_run
from anychip.run.real_shapes import RealShapes

PAGE = 4


@pytest.fixture(scope="module", params=["native", "primitives"])
def calls(request, tmp_path_factory) -> list[CallSpec]:
    """Every different call of prefills and decodes, greedy and sampled."""
    folder = tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"), dtype="bfloat16")
    options = {"primitives_only": "true"} if request.param == "primitives" else {}
    asked = ServeConfig(
        model_path=str(folder), backend="fake", chip_option=options, max_running_requests=5
    )
    opened = open_run(asked)
    try:
        return [a.spec for a in RealShapes(asked, opened).calls()]
    finally:
        opened.close()


def operands(spec: CallSpec, seed: str = "x") -> dict[str, Any]:
    """Drawn ones, and small numbers for the weights, which come from elsewhere."""
    found = drawn(spec, seed)
    weights = {a.name for a in CATALOGUE[spec.op].inputs if a.kind is ArgKind.WEIGHT}
    present = {name for name in weights if spec.inputs[name] is not None}
    source = np.random.default_rng(0)
    shapes = {name: spec.inputs[name].shape for name in present}
    return found | {n: source.normal(size=s).astype(np.float32) for n, s in shapes.items()}


def index(*shape: int) -> TensorSpec:
    return TensorSpec(shape, DType.INT32)


def call(op: str, inputs: dict[str, Any], **attrs: Any) -> CallSpec:
    attrs = {a.name: a.default for a in CATALOGUE[op].attrs} | attrs
    outs = infer_outputs(CATALOGUE[op], inputs, attrs)
    names = [a.name for a in CATALOGUE[op].outputs]
    return CallSpec(op, inputs, dict(zip(names, outs, strict=True)), attrs)


def cache(layout: str = NHD, dtype: DType = DType.BFLOAT16) -> CacheSpec:
    return CacheSpec(CacheGroup(1, 2, 8, dtype, PAGE, layout), 2)


def attention(tokens: int, rows: int, width: int, layout: str = NHD) -> CallSpec:
    inputs = {
        "q": TensorSpec((tokens, 4, 8), DType.BFLOAT16),
        "cache": cache(layout),
        "page_table": index(rows, width),
        "cu_q": index(rows + 1),
        "kv_lens": index(rows),
        "positions": index(tokens),
        "token_rows": index(tokens),
    }
    return call("paged_attention", inputs, scale=0.25)


def test_programs_have_what_is_to_be_drawn(calls) -> None:
    ops = {spec.op for spec in calls}
    native = {"paged_attention", "kv_write", "rotary_embedding", "sample", "lm_head"}
    primitive = {"scatter_rows", "gather_rows", "rsqrt", "where", "sort", "batched_matmul"}
    assert native <= ops or primitive <= ops
    strided = [s for c in calls for s in c.inputs.values() if not getattr(s, "is_contiguous", True)]
    assert strided


def test_shapes_strides_and_dtypes_are_those_of_the_call(calls) -> None:
    for spec in calls:
        for name, array in drawn(spec, "x").items():
            wanted = spec.inputs[name]
            if isinstance(wanted, TensorSpec):
                steps = tuple(s // array.itemsize for s in array.strides)
                assert (array.shape, array.dtype) == (wanted.shape, NUMPY_DTYPES[wanted.dtype])
                assert steps == wanted.strides or wanted.is_contiguous, (spec.op, name)
            else:
                assert wanted is None or array.k.shape[1:] == wanted.shape[1:], (spec.op, name)


def test_oracle_takes_them_and_finds_no_nan(calls) -> None:
    """A NaN that is right is one that hides what a chip does."""
    for spec in calls:
        inputs = operands(spec)
        for name, value in outcome(spec.op, inputs, spec.attrs).items():
            halves = (value.k, value.v) if isinstance(value, CacheArrays) else (value,)
            found = [np.isnan(half.astype(np.float64)).any() for half in halves]
            assert not any(found), (spec.op, name)


def test_results_are_not_all_alike(calls) -> None:
    """Otherwise a chip that writes one number everywhere passes."""
    for spec in calls:
        if not spec.inputs or spec.op in ("eq", "lt", "le"):
            continue
        for name, value in outcome(spec.op, operands(spec), spec.attrs).items():
            array = value.k if isinstance(value, CacheArrays) else value
            assert array.size < 4 or len(np.unique(array.astype(np.float64))) > 1, (spec.op, name)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, CacheArrays):
        return same(one.k, other.k) and same(one.v, other.v)
    return one is None or np.array_equal(one, other)


def test_same_seed_same_values(calls) -> None:
    for spec in calls:
        first, second, other = (drawn(spec, seed) for seed in ("x", "x", "y"))
        assert all(same(first[name], second[name]) for name in first), spec.op
        large = {n for n, v in first.items() if isinstance(v, np.ndarray) and v.size > 99}
        assert not large or any(not same(first[n], other[n]) for n in large), spec.op


def test_targets_of_a_scatter_are_there_once(calls) -> None:
    scatters = [spec for spec in calls if spec.op == "scatter_rows"]
    for spec in scatters:
        target = drawn(spec, "x")["index"].reshape(-1)
        kept = target[target >= 0]
        assert kept.size and len(np.unique(kept)) == kept.size
        assert kept.max() < spec.inputs["target"].shape[0]
    assert scatters or any(spec.op == "kv_write" for spec in calls)


@pytest.mark.parametrize("layout", [NHD, HND])
@pytest.mark.parametrize(
    ("tokens", "rows", "width"),
    [(6, 6, 8), (1, 1, 1), (40, 1, 16), (37, 5, 16), (64, 4, 5), (20, 5, 1)],
)
def test_batch_of_attention_is_one_that_a_step_may_have(tokens, rows, width, layout) -> None:
    spec = attention(tokens, rows, width, layout)
    found = drawn(spec, "x")
    counts, lengths, table = np.diff(found["cu_q"]), found["kv_lens"], found["page_table"]
    assert found["cu_q"][0] == 0 and found["cu_q"][-1] == tokens and counts.min() >= 1
    assert (found["token_rows"] == np.repeat(np.arange(rows), counts)).all()
    for row in range(rows):
        mine = found["positions"][found["token_rows"] == row]
        assert mine.tolist() == list(range(lengths[row] - counts[row], lengths[row]))
        assert mine[0] >= 0 and lengths[row] <= width * PAGE
    used = [table[row, : -(-lengths[row] // PAGE)] for row in range(rows)]
    pages = np.concatenate(used)
    assert len(set(pages.tolist())) == pages.size and pages.min() > 0
    assert table.min() >= 0 and table.max() < found["cache"].k.shape[0]
    assert found["cache"].k.shape[1:] == (PAGE, 2, 8)
    assert found["cache"].k.dtype == NUMPY_DTYPES[DType.BFLOAT16]
    assert outcome(spec.op, found, spec.attrs)["y"].shape == (tokens, 4, 8)


def test_rows_have_contexts_of_different_lengths_in_shuffled_pages() -> None:
    found = drawn(attention(70, 7, 64), "x")
    counts = np.diff(found["cu_q"])
    before = found["kv_lens"] - counts
    assert counts.tolist() == [64, 1, 1, 1, 1, 1, 1]
    assert len(set(before.tolist())) > 3 and before.max() < CONTEXT * PAGE
    first = found["page_table"][0, :16]
    assert first.tolist() != sorted(first.tolist())


@pytest.mark.parametrize(("tokens", "rows", "width"), [(41, 2, 5), (3, 4, 5)])
def test_tokens_that_no_step_could_hold_are_refused(tokens, rows, width) -> None:
    with pytest.raises(ValueError, match=rf"{tokens} tokens in {rows} rows of at most 20"):
        drawn(attention(tokens, rows, width), "x")


def test_slots_of_a_write_are_apart_and_inside() -> None:
    half = TensorSpec((33, 2, 8), DType.BFLOAT16)
    spec = call("kv_write", {"cache": cache(), "k": half, "v": half, "slots": index(33)})
    found = drawn(spec, "x")
    slots = found["slots"]
    assert len(set(slots.tolist())) == 33
    assert slots.min() >= 0 and slots.max() < found["cache"].k.shape[0] * PAGE


@pytest.mark.parametrize("count", [1, 3, 40])
def test_no_page_is_copied_from_and_to(count) -> None:
    spec = call(
        "kv_copy_pages", {"cache": cache(), "sources": index(count), "targets": index(count)}
    )
    found = drawn(spec, "x")
    both = [*found["sources"].tolist(), *found["targets"].tolist()]
    assert len(set(both)) == 2 * count and max(both) < found["cache"].k.shape[0]


def test_fused_block_writes_where_its_batch_says_and_stays_in_its_rotation_table() -> None:
    tokens, positions = 18, 18
    linear = TensorSpec((32, 32), DType.FLOAT32)
    batch = attention(tokens, 1, 5).inputs
    given = {n: batch[n] for n in ("page_table", "cu_q", "kv_lens", "positions", "token_rows")}
    inputs = {
        "x": TensorSpec((tokens, 32), DType.FLOAT32),
        "residual": None,
        "norm": TensorSpec((32,), DType.FLOAT32),
        "qkv": TensorSpec((64, 32), DType.FLOAT32),
        "qkv_bias": None,
        "output": linear,
        "output_bias": None,
        "cos_sin": TensorSpec((positions, 8), DType.FLOAT32),
        "cache": cache(dtype=DType.FLOAT32),
        "slots": index(tokens),
        **given,
    }
    attrs = {"heads": 4, "eps": 1e-5, "rotary_dim": 8, "scale": 0.25}
    spec = call("attention_block", inputs, **attrs)
    found = drawn(spec, "x")
    table, at = found["page_table"][0], found["positions"]
    assert at.max() < positions
    assert found["slots"].tolist() == (table[at // PAGE] * PAGE + at % PAGE).tolist()
    assert np.isfinite(outcome(spec.op, found, spec.attrs)["y"]).all()


def test_indices_point_into_what_they_count() -> None:
    table, tokens = TensorSpec((9, 8), DType.FLOAT32), index(400)
    gather = drawn(call("gather_rows", {"table": table, "index": tokens}), "x")
    assert set(gather["index"].tolist()) == set(range(9))
    spec = call("histogram", {"index": tokens}, bins=3)
    assert set(drawn(spec, "x")["index"].tolist()) == set(range(3))
    assert outcome("histogram", drawn(spec, "x"), spec.attrs)["y"].sum() == 400


@pytest.mark.parametrize("op", ["log", "sqrt", "rsqrt"])
def test_functions_are_drawn_where_they_are_defined(op) -> None:
    spec = call(op, {"x": TensorSpec((50, 8), DType.FLOAT32)})
    assert np.isfinite(outcome(op, drawn(spec, "x"), {})["y"]).all()


def test_comparisons_meet_equal_numbers() -> None:
    side = TensorSpec((20, 20), DType.FLOAT32)
    spec = call("eq", {"a": side, "b": side})
    share = outcome("eq", drawn(spec, "x"), {})["y"].mean()
    assert 0.1 < share < 0.9


def test_gaps_of_a_strided_operand_are_nan() -> None:
    apart = dataclasses.replace(TensorSpec((5, 8), DType.BFLOAT16), strides=(24, 1))
    x = drawn(call("copy", {"x": apart}), "x")["x"]
    whole = np.lib.stride_tricks.as_strided(x, (4 * 24 + 8,), (x.itemsize,)).astype(np.float32)
    assert np.isnan(whole).sum() == 4 * 16 and np.isfinite(x.astype(np.float32)).all()


def test_sampler_gets_numbers_in_its_ranges() -> None:
    rows = TensorSpec((200,), DType.FLOAT32)
    inputs = {"logits": TensorSpec((200, 30), DType.FLOAT32), "temperature": rows}
    inputs |= {"top_k": index(200), "top_p": rows, "min_p": rows, "noise": rows}
    found = drawn(call("sample", inputs), "x")
    ranges = {"temperature": (0.5, 1.5), "top_p": (0.5, 1), "min_p": (0, 0.1), "noise": (0, 1)}
    for name, (low, high) in ranges.items():
        assert low <= found[name].min() and found[name].max() <= high
    assert 0 in found["top_k"] and found["top_k"].min() == 0
    assert (outcome("sample", found, {})["tokens"] >= 0).all()


LOGITS = TensorSpec((5, 70), DType.FLOAT32)


@pytest.mark.parametrize("count", [1, 40, 400])
def test_entries_change_each_logit_once(count) -> None:
    factor = TensorSpec((count,), DType.FLOAT32)
    inputs = {"rows": index(count), "ids": index(count), "repetition": factor, "bias": factor}
    found = drawn(call("adjust_logits", {"logits": LOGITS, **inputs}), "x")
    used = found["rows"] >= 0
    places = found["rows"][used] * 70 + found["ids"][used]
    assert used.sum() == min(count, 350) == len(set(places.tolist()))
    assert found["ids"].min() >= 0 and found["ids"].max() < 70 and found["rows"].max() < 5
    assert found["repetition"].min() >= 1


def test_masks_use_every_bit_and_tokens_the_vocabulary() -> None:
    mask = drawn(call("mask_logits", {"logits": LOGITS, "mask": index(5, 3)}), "x")["mask"]
    assert (mask < 0).any() and (mask > 2**24).any()
    inputs = {"logits": LOGITS, "sampled": index(5), "given": index(5)}
    found = drawn(call("token_logprobs", inputs), "x")
    assert 8 <= max(found["sampled"].max(), found["given"].max()) < 70
