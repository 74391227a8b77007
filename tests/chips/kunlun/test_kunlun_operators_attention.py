"""Attention and the cache: whom the vendor serves, and that both ways say the same."""

from __future__ import annotations

from dataclasses import replace

import kunlun_sim
import numpy as np
import pytest

from anychip.chips.kunlun.operators import HEAD_SIZES
from anychip.chips.kunlun.registration import KunlunChip
from anychip.conform.operator_calls import finish, judged, run_case, spec_of
from anychip.conform.operator_cases import Types, fitted, typed
from anychip.conform.operator_given import run_given
from anychip.contract.cache import HND, CacheGroup
from anychip.contract.dtype import DType
from anychip.contract.tensor import Tensor
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases.attention import Heads, Ragged, attention_inputs
from anychip.ops.cases.case import Case
from anychip.ops.cases.draw import draw
from anychip.ops.placed import place
from anychip.run.cache import allocate_cache, free_cache

DTYPES = [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16]
HEADS = Heads(6, 2, 64)
BATCHES = {
    "decoding": Ragged((1, 1, 1), (9, 130, 64), 16),
    "prefill": Ragged((37, 20), (37, 20), 16),
    "chunk after a prefix": Ragged((5, 33), (70, 33), 64),
    "mixture": Ragged((1, 7, 1, 1, 30, 2), (65, 7, 1, 40, 50, 18), 32),
}


@pytest.fixture(scope="module")
def chip(sdk):
    opened = KunlunChip.open(0, kunlun_sim.options_for(sdk.root))
    yield opened
    opened.close()


def ways(chip):
    vendor, composed = chip.operators.of("paged_attention")
    assert (vendor.id, composed.id) == ("kunlun.paged_attention", "kunlun.paged_attention_composed")
    return vendor, composed


def asked(batch, heads=HEADS, **attrs):
    inputs = attention_inputs(draw("kunlun"), batch, heads)
    return Case("paged_attention", "", inputs, {"scale": heads.dim**-0.5, **attrs})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_both_ways_agree_with_the_oracle(chip, batch, dtype):
    case = fitted(chip, typed(asked(batch), Types(dtype, dtype, dtype)))
    for impl in ways(chip):
        assert impl.declines(spec_of(chip, case)) is None
        verdict = judged(case, run_case(chip, case, impl).outcome, impl)
        assert verdict.ok, f"{impl.id}: {verdict.text}"


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_the_vendor_serves_what_is_not_declined(chip, batch):
    """The composed way fills its workspace with scores; the vendor's leaves it as it was."""
    case = asked(batch)
    for impl, touched in zip(ways(chip), (False, True), strict=True):
        with place(chip, case.op, case.inputs, case.attrs) as placed:
            nbytes = impl.workspace(placed.call.spec)
            room = Tensor((nbytes,), DType.UINT8, buffer=chip.memory.allocate(nbytes))
            chip.memory.fill(room, 0x5A)
            finish(chip, impl.prepare(replace(placed.call, workspace=room)))
            left = placed.read(room)
            chip.memory.free(room.buffer)
        assert bool((left != 0x5A).any()) is touched, impl.id


DECLINED = {
    "it has no soft cap": {"softcap": 20.0},
    "it is causal": {"causal": False},
    "it ignores a window": {"window": 5},
    "it scales by 1 / sqrt(64)": {"scale": 0.1},
}


@pytest.mark.parametrize(("reason", "attrs"), DECLINED.items(), ids=DECLINED)
def test_what_the_vendor_cannot_say_is_declined_and_composed(chip, reason, attrs):
    case = asked(BATCHES["mixture"], **attrs)
    vendor, composed = ways(chip)
    assert vendor.declines(spec_of(chip, case)) == reason
    assert composed.declines(spec_of(chip, case)) is None
    verdict = judged(case, run_case(chip, case, composed).outcome, composed)
    assert verdict.ok, verdict.text


def test_a_window_over_both_sides(chip):
    case = asked(BATCHES["mixture"], causal=False, window=6)
    _, composed = ways(chip)
    verdict = judged(case, run_case(chip, case, composed).outcome, composed)
    assert verdict.ok, verdict.text


def test_a_window_that_no_sequence_reaches_is_none(chip):
    vendor, _ = ways(chip)
    case = asked(BATCHES["decoding"], window=4096)
    assert vendor.declines(spec_of(chip, case)) is None
    assert judged(case, run_case(chip, case, vendor).outcome, vendor).ok


@pytest.mark.parametrize("dim", [*HEAD_SIZES[:4], 40])
def test_sizes_of_heads(chip, dim):
    case = asked(BATCHES["decoding"], Heads(2, 1, dim))
    reason = ways(chip)[0].declines(spec_of(chip, case))
    assert reason == (None if dim in HEAD_SIZES else f"heads of {dim}")


@pytest.mark.parametrize(("rows", "reason"), [(1023, None), (1024, "1,024 rows, it takes 1,023")])
def test_the_largest_batch(chip, rows, reason):
    batch = Ragged((1,) * rows, tuple(1 + n % 20 for n in range(rows)), 16)
    case, (vendor, composed) = asked(batch, Heads(1, 1, 32)), ways(chip)
    assert vendor.declines(spec_of(chip, case)) == reason
    impl = composed if reason else vendor
    assert judged(case, run_case(chip, case, impl).outcome, impl).ok


def test_tokens_that_are_not_the_last_of_their_sequence(chip):
    """What the vendor would read from the lengths alone: the row is composed inside the call."""
    case = asked(BATCHES["mixture"])
    positions = case.inputs["positions"].copy()
    positions[1:8] = np.maximum(positions[1:8] - 2, 0)
    moved = replace(case, inputs={**case.inputs, "positions": positions})
    vendor, _ = ways(chip)
    found = run_case(chip, moved, vendor).outcome
    assert judged(moved, found, vendor).ok
    assert not judged(case, found, vendor).ok


def test_a_token_that_sees_nothing_gives_zeros(chip):
    case = asked(BATCHES["mixture"])
    inputs = {n: v.copy() for n, v in case.inputs.items() if n != "cache"}
    inputs["kv_lens"][2], inputs["positions"][0] = 0, -1
    inputs["token_rows"][-2:] = -1
    blind = replace(case, inputs={**inputs, "cache": case.inputs["cache"]})
    for impl in ways(chip):
        found = run_case(chip, blind, impl).outcome["y"]
        seen = np.abs(found).reshape(len(found), -1).sum(axis=1) > 0
        lost = [0, 8, len(found) - 2, len(found) - 1]
        assert not seen[lost].any() and seen.sum() == len(found) - len(lost), impl.id


@pytest.mark.parametrize("name", ["kv_write", "kv_write_composed"])
def test_slots_beyond_what_float32_counts(chip, name):
    """A slot is divided by the page size exactly, also where a float32 cannot hold it."""
    impl = next(i for i in chip.operators.implementations if i.id == f"kunlun.{name}")
    size, slots = 48, [(1 << 25) + 3, 1, -1, (1 << 24) + 1, (1 << 25) - 1]
    group = CacheGroup(1, 1, 2, DType.BFLOAT16, size, HND)
    (view,) = views = allocate_cache(chip.memory, group, (1 << 25) // size + 2)
    k, v = np.arange(20, dtype=np.float32).reshape(2, 5, 1, 2) + 1
    inputs = {"cache": view, "k": k, "v": v, "slots": np.array(slots, np.int32)}
    run_given(chip, "kv_write", inputs, {}, impl)
    for half, rows in ((view.k, k), (view.v, v)):
        for slot, row in zip(slots, rows, strict=True):
            found = np.zeros(2, NUMPY_DTYPES[DType.BFLOAT16])
            if slot >= 0:
                chip.memory.copy_out(half.view((2,), offset=2 * slot), found.view(np.uint8).data)
                assert found.tolist() == row[0].tolist(), slot
    free_cache(chip.memory, views)
