"""Every row of the operators' table against the oracle, and what is not left to the vendor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product

import kunlun_sim
import numpy as np
import pytest

from anychip.chips.kunlun.operators import TABLE, operator_table
from anychip.chips.kunlun.registration import KunlunChip
from anychip.conform.operator_calls import finish, judged, run_case, spec_of
from anychip.conform.operator_cases import F32, asked, mixed_types, types_of
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.signature import Tier
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import Case
from anychip.ops.cases.grid import outliers, sized
from anychip.ops.placed import place
from anychip.ops.recipe import Recipe
from anychip.sdkbase.table import rows

ROWS = rows(TABLE)
NAMES = [row["name"] for row in ROWS]
AROUND_A_DRAW = ("sample", "mask_logits", "adjust_logits", "token_logprobs", "top_logprobs")
OF_CONTRACT_0_5 = {
    *("qk_norm", "swiglu_clamp_and_mul", "route_experts", "grouped_linear", "expert_mlp"),
    *("sink_attention", "latent_write", "latent_attention", "expanded_attention"),
    *("causal_conv1d", "gated_delta_rule"),
}
LEFT_TO_RECIPES = {*AROUND_A_DRAW, "attention_block", "mlp_block", *OF_CONTRACT_0_5}
HELD = [d for d in DType if d is not DType.FLOAT8_E4M3]


@pytest.fixture(scope="module")
def chip(sdk):
    opened = KunlunChip.open(0, kunlun_sim.options_for(sdk.root))
    yield opened
    opened.close()


def implementation(chip, name):
    return next(i for i in chip.operators.implementations if i.id == f"kunlun.{name}")


def run(chip, op, inputs, attrs=None, name=None):
    """What one row of the table gives, by name; bytes beside its outputs must be left alone."""
    case = Case(op, "", inputs, attrs or {}, None, DType.FLOAT32)
    ran = run_case(chip, case, implementation(chip, name or op))
    assert ran.damaged is None
    return ran.outcome


@pytest.mark.parametrize("name", NAMES)
def test_row_agrees_with_the_oracle_in_every_dtype(chip, name):
    impl = implementation(chip, name)
    types = types_of(chip, impl.op)
    ran = set()
    for one in types:
        for case in asked(chip, impl.op, one):
            if impl.declines(spec_of(chip, case)) is None:
                found = run_case(chip, case, impl)
                verdict = judged(case, found.outcome, impl)
                assert found.damaged is None, case.name
                assert verdict.ok, f"{case.name} in {one.text(impl.op)}: {verdict.text}"
                ran.add(one)
    # one row is for operands of two bytes, the row behind it for the others
    assert ran == {t for t in types if name != "lm_head_wide" or t.activation is not F32}


@pytest.mark.parametrize(
    "name", ["linear", "lm_head", "embedding", "kv_write", "kv_write_composed"]
)
def test_two_float_types_in_one_call(chip, name):
    impl = implementation(chip, name)
    for one in mixed_types(chip, impl.op):
        for case in list(asked(chip, impl.op, one))[-2:]:
            assert impl.declines(spec_of(chip, case)) is None
            verdict = judged(case, run_case(chip, case, impl).outcome, impl)
            assert verdict.ok, f"{case.name} in {one.text(impl.op)}: {verdict.text}"


def test_every_operator_has_a_row_but_those_left_to_recipes(chip):
    assert {row["operator"] for row in ROWS} == set(CATALOGUE) - LEFT_TO_RECIPES
    assert [i.id for i in chip.operators.implementations] == [f"kunlun.{n}" for n in NAMES]
    assert not LEFT_TO_RECIPES & {n for n, s in CATALOGUE.items() if s.tier is Tier.PRIMITIVE}


@pytest.mark.parametrize("op", AROUND_A_DRAW)
def test_recipes_around_a_draw_agree_with_the_oracle_on_the_card(chip, op):
    with Recipe(chip, op) as recipe:
        for case in asked(chip, op, types_of(chip, op)[0]):
            if all(s.size for s in spec_of(chip, case).inputs.values()):
                verdict = judged(case, run_case(chip, case, recipe).outcome, recipe)
                assert verdict.ok, f"{case.name}: {verdict.text}"


class Shimless:
    """A shim that was built without some rows."""

    def __init__(self, without=()):
        self._without = without

    def has(self, name):
        return name not in self._without


def test_a_row_that_the_shim_lacks_is_left_out_and_its_operator_served_by_the_next(chip):
    lacking = Shimless({"paged_attention", "rotary_embedding"})
    table = operator_table(lacking, chip.queue._stream, simulated=True)
    assert [i.id for i in table.of("paged_attention")] == ["kunlun.paged_attention_composed"]
    assert table.of("rotary_embedding") == ()


def test_guesses_wait_for_their_proof_on_a_real_sdk_alone(chip):
    real = operator_table(Shimless(), chip.queue._stream)
    unproved = {i.id for i in real.implementations if i.unproved}
    guesses = {f"kunlun.{r['name']}" for r in ROWS if r["evidence"] == "guess"}
    assert {".".join(name.split(".")[:2]) for name in unproved} == guesses
    assert "kunlun.lm_head_wide.bfloat16" in unproved, "each dtype is proved by itself"
    assert "kunlun.kv_write.float32.bfloat16" in unproved, "and each pair of dtypes"
    assert unproved and all(i.assumed for i in real.implementations if i.unproved)
    assert not any(i.unproved for i in chip.operators.implementations)


@pytest.mark.parametrize("bias", [None, [1.5, -2.0]])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_sum_of_no_products_is_the_bias_or_zero(chip, dtype, bias):
    held = None if bias is None else np.array(bias, np.float32)
    weight = np.zeros((2, 0), np.float16)
    empty = {"x": np.zeros((3, 0), dtype), "weight": weight, "bias": held}
    found = run(chip, "linear", empty)["y"]
    assert found.astype(np.float32).tolist() == [bias or [0, 0]] * 3
    batch = {"a": np.zeros((2, 3, 0), dtype), "b": np.zeros((2, 0, 4), dtype)}
    found = run(chip, "batched_matmul", batch, {"transpose_b": False})["y"]
    assert found.shape == (2, 3, 4) and not found.any()


def test_products_are_of_floats_and_not_of_16_bit_whole_numbers(chip):
    """A few values of 1e4 beside small ones: quantized to 16 bits the small ones are lost."""
    case = outliers("linear")
    verdict = judged(
        case,
        run_case(chip, case, implementation(chip, "linear")).outcome,
        implementation(chip, "linear"),
    )
    assert verdict.ok, verdict.text
    x, weight = case.inputs["x"].astype(np.float64), case.inputs["weight"].astype(np.float64)
    step = np.abs(x).max() / 32767
    lossy = np.round(x / step) * step @ weight.T
    exact = x @ weight.T
    assert np.linalg.norm(lossy - exact) / np.linalg.norm(exact) > 10 * verdict.limit


VALUES = np.array([-3.75, -1.5, -1, -0.5, 0, 0.5, 0.999, 1.5, 2.5, 100], np.float64)


@pytest.mark.parametrize(("source", "target"), list(product(HELD, HELD)))
def test_casts_between_all_types(chip, source, target):
    whole = np.array([0, 1, 2, 3, 100, 0, 1, 7, 5, 120])
    values = VALUES if source.is_float else whole
    x = (values != 0) if source is DType.BOOL else values.astype(NUMPY_DTYPES[source])
    if target is DType.UINT8 and source.is_float:
        x = np.abs(x)
    found = run(chip, "cast", {"x": x}, {"dtype": target.value})["y"]
    wanted = x.astype(np.float64)
    if target is DType.BOOL:
        wanted = wanted != 0
    elif not target.is_float:
        wanted = np.trunc(wanted)
    np.testing.assert_array_equal(found, wanted.astype(NUMPY_DTYPES[target]))


@pytest.mark.parametrize("dtype", HELD)
def test_fill_and_copy_in_every_type(chip, dtype):
    target = NUMPY_DTYPES[dtype]
    attrs = {"shape": (3, 5), "value": 1.0, "dtype": dtype.value}
    assert (run(chip, "fill", {}, attrs)["y"] == np.ones((3, 5), target)).all()
    x = (np.arange(20).reshape(4, 5) % 2).astype(target).T
    assert (run(chip, "copy", {"x": x})["y"] == x).all()


def test_bits_of_a_nan_and_of_small_integers_survive_a_copy(chip):
    bits = np.array([0x7FC1, 0x0001, 0x8000, 0x3F80] * 3, np.uint16).reshape(4, 3)
    x = bits.view(NUMPY_DTYPES[DType.BFLOAT16]).T
    found = run(chip, "copy", {"x": x})["y"]
    assert found.view(np.uint16).tolist() == bits.T.tolist()
    small = np.arange(-6, 6, dtype=np.int32).reshape(3, 4).T
    assert (run(chip, "copy", {"x": small})["y"] == small).all()


def test_halves_are_rounded_to_even(chip):
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 0.49999997, 8388609.0, -3e38, np.inf], np.float32)
    assert (run(chip, "round", {"x": x})["y"] == np.rint(x)).all()


@pytest.mark.parametrize("op", ["argmax", "greedy"])
def test_the_first_of_equals_wins_and_a_nan_is_never_chosen(chip, op):
    low = -np.inf
    rows = [[1, 5, 5, 0], [np.nan, 2, np.nan, 2], [np.nan] * 4, [np.nan, low, low, np.nan]]
    inputs = {"x" if op == "argmax" else "logits": np.array(rows, np.float32)}
    (found,) = run(chip, op, inputs).values()
    assert found.tolist() == [1, 1, -1, 1]


@pytest.mark.parametrize(("op", "attrs"), [("sort", {}), ("topk", {"k": 5})])
def test_equals_keep_their_order(chip, op, attrs):
    x = np.random.default_rng(4).integers(0, 3, (4, 60)).astype(np.float32)
    found = run(chip, op, {"x": x}, attrs)
    order = np.argsort(-x, axis=-1, kind="stable")[:, : attrs.get("k")]
    assert (found["indices"] == order).all()
    assert (found["values"] == np.take_along_axis(x, order, -1)).all()


SKIPPED = {
    "none of them": [3, 0, 1],
    "some": [-1, 2, -5],
    "all": [-1, -1, -2],
    "one and row 0": [-1, 0, 4],
}


@pytest.mark.parametrize("index", SKIPPED.values(), ids=SKIPPED)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.INT32])
def test_negative_indices_are_skipped(chip, dtype, index):
    target = np.arange(15).reshape(5, 3).astype(NUMPY_DTYPES[dtype])
    source = (100 + np.arange(9)).reshape(3, 3).astype(target.dtype)
    where = np.array(index, np.int32)
    wanted = target.copy()
    wanted[where[where >= 0]] = source[where >= 0]
    inputs = {"target": target, "source": source, "index": where}
    assert (run(chip, "scatter_rows", inputs)["target"] == wanted).all()


def test_repeated_indices_add_up_and_a_skipped_nan_does_no_harm(chip):
    target = np.ones((4, 2), np.float32)
    source = np.array([[1, 2], [np.nan, np.nan], [3, 4], [5, 6]], np.float32)
    index = np.array([2, -1, 2, 0], np.int32)
    inputs = {"target": target, "source": source, "index": index}
    found = run(chip, "scatter_add_rows", inputs)["target"]
    assert found.tolist() == [[6, 7], [1, 1], [5, 7], [1, 1]]


def test_what_is_in_no_bin_is_not_counted(chip):
    index = np.array([0, 2, 2, -1, 3, 99], np.int32)
    assert run(chip, "histogram", {"index": index}, {"bins": 3})["y"].tolist() == [1, 0, 2]


def test_a_launch_reads_its_memory_when_it_runs(chip):
    with place(chip, "neg", {"x": np.ones(4, np.float32)}, {}) as placed:
        launch = placed.prepare(implementation(chip, "neg"))
        for number in (2.0, 3.0):
            host = np.full(4, number, np.float32)
            chip.memory.copy_in(placed.call.inputs["x"], host.view(np.uint8).data)
            finish(chip, launch)
            assert placed.outcome()["y"].tolist() == [-number] * 4


def test_a_freed_buffer_is_refused_when_a_call_is_prepared(chip):
    with place(chip, "exp", {"x": np.ones(4, np.float32)}, {}) as placed:
        pass
    with pytest.raises(ChipError, match="freed") as caught:
        implementation(chip, "exp").prepare(placed.call)
    assert caught.value.fact.kind is ErrorKind.INVALID


def test_a_workspace_that_is_too_small_is_told(chip):
    case = sized("rotary_embedding", T=5)
    with place(chip, case.op, case.inputs, case.attrs) as placed:
        launch = implementation(chip, "rotary_embedding").prepare(placed.call)
        with pytest.raises(ChipError, match="rotary_embedding: its workspace is too small"):
            launch()


def test_a_status_of_the_vendor_is_told_with_the_call_that_gave_it(chip):
    """Forced: heads of 16 past the guard."""
    case = sized("paged_attention", D=16)
    impl = implementation(chip, "paged_attention")
    assert impl.declines(spec_of(chip, case)) == "heads of 16"
    placed = place(chip, case.op, case.inputs, case.attrs)
    with placed, pytest.raises(ChipError) as caught:
        placed.prepare(impl)()
    text = str(caught.value)
    assert "xft_decoder_core_attenion_block: XDNN 1" in text, text
    assert caught.value.code == 10_001 and caught.value.operators == ("paged_attention",)


BAD_INDEX = """
import sys, json
sys.path[:0] = json.loads(sys.argv[1])
import numpy as np, kunlun_sim
from pathlib import Path
from anychip.chips.kunlun.registration import KunlunChip
from anychip.contract.errors import ChipError
from anychip.ops.placed import place
from anychip.ops.recipe import Recipe
chip = KunlunChip.open(0, kunlun_sim.options_for(Path(sys.argv[2])))
inputs = {"table": np.zeros((3, 2), np.float32), "index": np.array([5], np.int32)}
placed = place(chip, "gather_rows", inputs, {})
placed.prepare(chip.operators.of("gather_rows")[0])()
try:
    chip.queue.synchronize(None)
except ChipError as error:
    print(error.code, error.fatal, error.operators)
"""


def test_a_bad_index_is_a_fatal_error_at_the_wait(sdk):
    """In a process of its own: it taints the one that sees it."""
    command = [sys.executable, "-c", BAD_INDEX, json.dumps(sys.path), str(sdk.root)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert ended.stdout.startswith("714 True ('gather_rows',"), ended.stdout + ended.stderr
