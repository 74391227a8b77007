"""Every operator of torchbase against the oracle, in each dtype."""

from __future__ import annotations

import numpy as np
import pytest

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.signature import Tier
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from chips.fake.strict_calls import download, prepared, results, run

SERVED = sorted(n for n, s in CATALOGUE.items() if s.tier is not Tier.FUSED)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16])
@pytest.mark.parametrize("op", SERVED)
def test_operator_agrees_with_the_oracle(chip, op, dtype):
    ran = 0
    for case in (c.with_dtype(dtype) for c in cases(op)):
        impl, call = prepared(chip, op, case.inputs, case.attrs)
        assert impl.declines(call.spec) is None, (case.name, impl.declines(call.spec))
        launch = impl.prepare(call)
        for tensor in call.outputs.values():
            chip.memory.fill(tensor, 0xFF)
        launch()
        verdict = check_case(case, results(chip, call))
        assert verdict.ok, f"{case.name}: {verdict.text}"
        ran += 1
    assert ran


def test_table_holds_every_operator_but_the_fused_ones(chip):
    assert sorted(i.op for i in chip.operators.implementations) == SERVED
    assert {i.id for i in chip.operators.implementations} == {f"torch.{op}" for op in SERVED}


def test_the_first_of_equals_wins_and_a_nan_is_never_chosen(chip):
    rows = [[1, 5, 5, 0], [np.nan, 2, np.nan, 2], [np.nan] * 4, [-np.inf, -np.inf, -np.inf, np.nan]]
    found = run(chip, "greedy", {"logits": np.array(rows, np.float32)})
    assert found["tokens"].tolist() == [1, 1, -1, 0]


def test_a_bfloat16_weight_under_float32_rows(chip):
    source = np.random.default_rng(3)
    x = source.standard_normal((5, 32)).astype(np.float32)
    whole = source.integers(-8, 8, (7, 32))
    weight = whole.astype(np.dtype("bfloat16"))
    found = run(chip, "linear", {"x": x, "weight": weight, "bias": None})["y"]
    np.testing.assert_allclose(found, x @ whole.T.astype(np.float32), rtol=1e-5, atol=1e-4)


def attention_inputs(lengths, queries):
    """Queries at the end of sequences with pages of 4, page 0 unused and full of NaN."""
    source, size, dim = np.random.default_rng(5), 4, 8
    pages = [-(-n // size) for n in lengths]
    k, v = source.standard_normal((2, 1 + sum(pages), size, 2, dim)).astype(np.float32)
    k[0] = v[0] = np.nan
    table, first = np.zeros((len(lengths), max(pages)), np.int32), 1
    for row, count in enumerate(pages):
        table[row, :count] = range(first, first + count)
        first += count
    rows = np.repeat(np.arange(len(lengths)), queries)
    positions = np.concatenate([np.arange(n - q, n) for n, q in zip(lengths, queries, strict=True)])
    q = source.standard_normal((len(rows), 4, dim)).astype(np.float32)
    return {"q": q, "k": k, "v": v, "page_table": table, "lens": lengths} | {
        "positions": positions.astype(np.int32),
        "token_rows": rows.astype(np.int32),
        "cu_q": np.cumsum([0, *queries]).astype(np.int32),
    }


def attended(chip, made):
    from anychip.ops.oracle import CacheArrays

    arrays = {n: made[n] for n in ("q", "page_table", "positions", "token_rows", "cu_q")}
    arrays |= {"cache": CacheArrays(made["k"], made["v"])}
    arrays |= {"kv_lens": np.array(made["lens"], np.int32)}
    return run(chip, "paged_attention", arrays, {"scale": 0.3})["y"]


def test_sequences_of_one_query_agree_alone_and_together_beside_garbage(chip, monkeypatch):
    made = attention_inputs([9, 1, 30, 5], [1, 1, 1, 1])
    together = attended(chip, made)
    assert np.isfinite(together).all()
    monkeypatch.setattr("anychip.torchbase.attention.POSITIONS", 1)
    np.testing.assert_allclose(attended(chip, made), together, rtol=1e-5, atol=1e-6)


def test_a_long_chunk_in_tiles_agrees_with_itself_whole(chip, monkeypatch):
    made = attention_inputs([30, 12], [30, 5])
    whole = attended(chip, made)
    monkeypatch.setattr("anychip.torchbase.attention.TOKENS", 7)
    np.testing.assert_allclose(attended(chip, made), whole, rtol=1e-5, atol=1e-6)


def test_logits_of_a_narrow_weight_come_in_panels(chip, monkeypatch):
    monkeypatch.setattr("anychip.torchbase.network.PANEL", 3)
    x = np.eye(4, dtype=np.float32)
    weight = np.arange(40, dtype=np.float32).reshape(10, 4)
    found = run(chip, "lm_head", {"x": x, "weight": weight}, {"scale": 2.0})["logits"]
    np.testing.assert_array_equal(found, 2 * weight.T)


def test_a_bad_index_is_told_with_the_operator(chip):
    table, index = np.zeros((3, 2), np.float32), np.array([5], np.int32)
    impl, call = prepared(chip, "gather_rows", {"table": table, "index": index}, {})
    with pytest.raises(ChipError, match="gather_rows") as caught:
        impl.prepare(call)()
    assert caught.value.operators == ("gather_rows",)


def test_a_freed_buffer_is_refused_when_a_call_is_prepared(chip):
    impl, call = prepared(chip, "exp", {"x": np.ones(4, np.float32)}, {})
    chip.memory.free(call.inputs["x"].buffer)
    with pytest.raises(ChipError, match="freed") as caught:
        impl.prepare(call)
    assert caught.value.fact.kind is ErrorKind.INVALID


def test_a_launch_reads_its_memory_when_it_runs(chip):
    impl, call = prepared(chip, "neg", {"x": np.ones(4, np.float32)}, {})
    launch = impl.prepare(call)
    for number in (2.0, 3.0):
        chip.memory.copy_in(call.inputs["x"], np.full(4, number, np.float32).data)
        launch()
        assert download(chip, call.outputs["y"]).tolist() == [-number] * 4


def test_noise_0_draws_the_first_token_that_stays_and_noise_near_1_the_last(chip):
    rows, one = 2, np.ones(2, np.float32)
    logits = np.array([[-np.inf, 0, 1, -np.inf]] * rows, np.float32)
    noise = np.array([0.0, np.nextafter(np.float32(1), np.float32(0))], np.float32)
    numbers = {"temperature": one, "top_p": one, "min_p": 0 * one, "noise": noise}
    found = run(chip, "sample", {"logits": logits, "top_k": np.zeros(rows, np.int32), **numbers})
    assert found["tokens"].tolist() == [1, 2]


def test_a_token_that_sees_nothing_gives_zeros(chip):
    made = attention_inputs([9, 6, 5], [2, 1, 1])
    made["positions"][[0, 2]] = -1  # before the first position of its sequence
    made["token_rows"][3] = -1
    found = attended(chip, made)
    assert (found[[0, 2, 3]] == 0).all()
    assert (found[1] != 0).all()
