"""A model's operators at the shapes of its largest steps, with its own weights, and the oracle."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tiny_models
from anychip.chips.fake.operators import FakeWeights
from anychip.chips.fake.registration import FakeChip
from anychip.config import ServeConfig
from anychip.contract.cache import HND, CacheSpec
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, CallSpec, Implementation, Launch, OperatorTable
from anychip.contract.registration import read_options
from anychip.contract.tensor import TensorSpec
from anychip.model.checkpoint import open_checkpoint
from anychip.ops.check import Verdict
from anychip.ops.decide import Decider
from anychip.run.dense import dense_reader
from anychip.run.plan_run import Opened, open_run
from anychip.run.real_shapes import Answer, Asked, RealShapes, largest, with_guesses, worst
from conform.defective import Change, afterwards, chip_with, elements, on_output, other_attrs

ROWS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"), dtype="bfloat16")


def config(folder: Path, backend: str = "fake", **changes: Any) -> ServeConfig:
    changes = {"max_running_requests": ROWS, "dtype": "float32", **changes}
    return ServeConfig(model_path=str(folder), backend=backend, **changes)


@contextmanager
def opened_on(asked: ServeConfig, cls: type[FakeChip] | None = None) -> Iterator[Opened]:
    """What a start would open; with a class, its chip in place of the fake one."""
    opened = open_run(asked)
    if cls is not None:
        opened.chip.close()
        opened.chip = cls(read_options(cls, asked.chip_option))
        opened.decider = Decider(opened.chip.operators)
    try:
        yield opened
    finally:
        opened.close()


def answers(asked: ServeConfig, cls: type[FakeChip] | None = None) -> list[Answer]:
    with opened_on(asked, cls) as opened:
        shapes = RealShapes(asked, opened)
        return [shapes.answer(one) for one in shapes.calls()]


def wrong(found: list[Answer]) -> set[str]:
    return {a.asked.implementation.id for a in found if not a.verdict.ok}


@pytest.mark.parametrize(
    ("backend", "options", "least"),
    [("fake", {}, 25), ("fake", {"primitives_only": "true"}, 25), ("cpu", {}, 15)],
    ids=["fake", "primitives", "cpu, which serves whole blocks"],
)
def test_sound_chip_agrees_everywhere(folder, backend, options, least) -> None:
    found = answers(config(folder, backend, chip_option=options, dtype="auto"))
    assert len(found) > least and wrong(found) == set()
    assert not any(a.why for a in found)
    ops = {a.asked.spec.op for a in found}
    assert {a.asked.spec.op for a in found if a.telling} == ops


def sizes(call: Asked, name: str) -> tuple[int, ...]:
    return call.spec.inputs[name].shape


def test_calls_are_those_of_prefills_and_decodes_and_each_is_there_once(folder) -> None:
    asked = config(folder)
    with opened_on(asked) as opened:
        calls = RealShapes(asked, opened).calls()
        chunk, step = min(opened.chunk, tiny_models.CONTEXT), opened.limits.step_tokens
    seen = [(c.implementation.id, str(c.spec.inputs), str(c.spec.attrs)) for c in calls]
    assert len(set(seen)) == len(seen)
    attention = [c for c in calls if c.spec.op == "paged_attention"]
    shapes = {(sizes(c, "q")[0], sizes(c, "page_table")[0]) for c in attention}
    assert shapes == {(chunk, 1), (step, ROWS), (ROWS, ROWS)} and step > chunk > ROWS
    linears = {sizes(c, "x")[0] for c in calls if c.spec.op == "linear"}
    assert linears == {chunk, step, ROWS}
    assert {c.spec.op for c in calls} >= {"greedy", "sample", "embedding", "kv_write"}
    names = {c.weights["weight"].split(".")[-1] for c in calls if c.spec.op == "linear"}
    assert len(names) == 4


@pytest.mark.parametrize("chunk", [-1, 24, 4096])
@pytest.mark.parametrize("context", [50, None])
def test_no_row_has_more_tokens_than_the_context(folder, chunk, context) -> None:
    asked = config(folder, chunked_prefill_size=chunk, context_length=context)
    with opened_on(asked) as opened:
        found = largest(opened)
        size, most = opened.plan.group.page_size, opened.plan.most_pages
        shapes = RealShapes(asked, opened)
        attention = [c for c in shapes.calls() if c.spec.op == "paged_attention"]
        assert all(shapes.answer(c).verdict.ok for c in attention)
    assert all(s.rows <= s.tokens <= s.rows * (context or tiny_models.CONTEXT) for s in found)
    assert all(s.pages <= most and s.tokens <= s.rows * s.pages * size for s in found)


def test_host_operators_and_missing_ones_are_no_calls_of_the_chip(folder) -> None:
    options = {"primitives_only": "true", "without": "rsqrt"}
    for allowed in (True, False):
        asked = config(folder, chip_option=options, allow_host_ops=allowed)
        with opened_on(asked) as opened:
            assert any(s.op == "rsqrt" for s in opened.record().served())
            calls = RealShapes(asked, opened).calls()
        assert calls and {c.implementation.id.split(".")[0] for c in calls} == {"fake"}
        assert not any(c.spec.op == "rsqrt" for c in calls)


DEFECTS = {
    "rms_norm": (other_attrs(lambda a: {"eps": 10 * a["eps"] + 0.1}), ""),
    "silu_and_mul": (on_output("y", lambda y: y.__setitem__(-1, 0)), ""),
    "greedy": (on_output("tokens", lambda y: y.__setitem__(0, y[0] + 1)), ""),
    "paged_attention": (
        other_attrs(lambda a: {"scale": a["scale"] ** 2}),
        "1/sqrt(head dim) is applied twice",
    ),
    "lm_head": (on_output("logits", lambda y: y.fill(np.nan)), "every number is NaN"),
    "linear": (on_output("y", lambda y: y.fill(0)), "every number is the same (0)"),
}


@pytest.mark.parametrize("op", DEFECTS)
def test_defective_operator_is_named_and_explained(folder, op) -> None:
    change, why = DEFECTS[op]
    found = answers(config(folder), chip_with({op: change}))
    assert wrong(found) == {f"fake.{op}"}
    (furthest,) = worst(found)
    assert furthest.text.startswith(f"fake.{op}: {op} diverges from the oracle")
    assert (f"; it looks as if {why}" in furthest.text) if why else not furthest.why
    assert all(not a.verdict.ok for a in found if a.asked.spec.op == op)


def beside(chip: FakeChip, call: Any) -> None:
    y = call.outputs["y"]
    chip._store.data(y.buffer)[y.offset + y.extent_bytes] ^= 1


def test_bytes_written_beside_an_output_are_told(folder) -> None:
    found = answers(config(folder), chip_with({"silu_and_mul": afterwards(beside)}))
    assert wrong(found) == {"fake.silu_and_mul"}
    assert {a.verdict.text for a in found if not a.verdict.ok} == {"bytes beside 'y' were written"}
    assert not any(a.why for a in found)


def spoiling(spoil: Callable[[np.ndarray], np.ndarray]) -> type[FakeChip]:
    """A chip that packs weights of bfloat16 wrongly."""

    class Spoiled(FakeWeights):
        def prepare(self, parts, uses):
            changed = []
            for part in parts:
                values = np.frombuffer(part.data, ml_dtypes.bfloat16).reshape(part.shape)
                packed = np.ascontiguousarray(spoil(values).astype(np.float32))
                data = packed.astype(ml_dtypes.bfloat16).reshape(-1).view(np.uint8).data
                changed.append(dataclasses.replace(part, data=data))
            return super().prepare(tuple(changed), uses)

    class Spoiling(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.weights = Spoiled(self.memory)

    return Spoiling


READ = {"fake.linear", "fake.lm_head", "fake.embedding"}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda w: w.view(np.uint16).view(np.float16), "bfloat16, its bytes are read as float16"),
        (lambda w: w.astype(np.float32) * 127, "max is taken for scale"),
    ],
    ids=["dtype", "scale"],
)
def test_weights_that_are_packed_wrongly_are_explained(folder, spoil, why) -> None:
    found = answers(config(folder, dtype="bfloat16"), spoiling(spoil))
    assert wrong(found) == READ
    for answer in found:
        assert (why in answer.why) == (answer.asked.implementation.id in READ), answer.text


def test_weights_are_the_models_own(folder) -> None:
    """What is packed is what the checkpoint holds under the name that the network gives it."""
    seen = []

    class Kept(FakeWeights):
        def prepare(self, parts, uses):
            found = super().prepare(parts, uses)
            store = self._memory._store
            self._memory._wait(None)
            seen.append(np.array(store.array(found.dense)).astype(np.float32))
            return found

    class Keeping(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.weights = Kept(self.memory)

    asked = config(folder)
    with opened_on(asked, Keeping) as opened:
        shapes = RealShapes(asked, opened)
        calls = [c for c in shapes.calls() if c.weights]
        assert all(shapes.answer(c).verdict.ok for c in calls)
    dense = dense_reader(open_checkpoint(folder))
    wanted = [dense(name) for c in calls for name in c.weights.values()]
    assert len(wanted) == len(calls) > 6
    for got, want in zip(seen, wanted, strict=True):
        assert np.array_equal(got, want)


def kept(name: str, seen: list[np.ndarray]) -> Change:
    """Remember what a kernel is given as one of its operands."""
    return afterwards(lambda chip, call: seen.append(np.array(elements(chip, call, name))))


def test_norms_and_biases_are_the_models_own(tmp_path) -> None:
    own = tiny_models.make_hf_folder(tmp_path, dtype="bfloat16", attention_bias=True)
    norms, biases = list[np.ndarray](), list[np.ndarray]()
    changes = {name: kept("weight", norms) for name in ("rms_norm", "add_rms_norm")}

    def biased(chip: FakeChip, impl: Implementation) -> Implementation:
        look = kept("bias", biases)(chip, impl)

        def prepare(call: Call) -> Launch:
            return (look if call.inputs["bias"] is not None else impl).prepare(call)

        return dataclasses.replace(impl, prepare=prepare)

    assert wrong(answers(config(own), chip_with({**changes, "linear": biased}))) == set()
    dense = dense_reader(open_checkpoint(own))
    wanted = {n: dense(n) for n in ("layers.0.attention_norm", "layers.0.mlp_norm", "final_norm")}
    assert len(norms) > 4 and len(biases) > 2
    for got in norms:
        assert any(np.array_equal(got, want) for want in wanted.values())
    for got in biases:
        names = ("layers.0.qkv_bias", "layers.0.attention_output_bias")
        assert any(np.array_equal(got, dense(name)) for name in names)


def test_matrix_that_a_recipe_reads_as_a_tensor_is_the_models_own(folder) -> None:
    tables = list[np.ndarray]()
    asked = config(folder, chip_option={"primitives_only": "true"})
    found = answers(asked, chip_with({"gather_rows": kept("table", tables)}))
    assert wrong(found) == set()
    embedding = dense_reader(open_checkpoint(folder))("embedding")
    assert any(np.array_equal(got.astype(np.float32), embedding) for got in tables)


def test_sound_half_precision_agrees_where_small_norms_meet_large_weights(tmp_path) -> None:
    """As models are trained. With random norms attention's scores reach hundreds: each rounding
    of a query then changes which token is attended to, and sound kernels seemed to be wrong."""
    model = copy.deepcopy(tiny_models.make_hf_model(dtype="bfloat16"))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.input_layernorm.weight *= 0.04
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight *= 8
    model.save_pretrained(tmp_path)
    tiny_models.write_tokenizer(tmp_path)
    asked = config(tmp_path, "cpu", dtype="bfloat16")
    found = answers(asked)
    assert "attention_block" in {a.asked.spec.op for a in found}
    assert wrong(found) == set()
    assert all(a.telling for a in found)


class HeadsFirst(FakeChip):
    """Its cache is [pages, KV heads, page size, head dim]."""

    def capabilities(self):
        return dataclasses.replace(super().capabilities(), cache_layout=HND)


def test_cache_whose_heads_come_first(folder) -> None:
    asked = config(folder)
    with opened_on(asked, HeadsFirst) as opened:
        opened.plan = dataclasses.replace(
            opened.plan, group=dataclasses.replace(opened.plan.group, layout=HND)
        )
        shapes = RealShapes(asked, opened)
        calls = [c for c in shapes.calls() if isinstance(c.spec.inputs.get("cache"), CacheSpec)]
        assert {c.spec.op for c in calls} == {"kv_write", "paged_attention"}
        assert all(shapes.answer(c).verdict.ok for c in calls)


def guessing(*ops: str) -> type[FakeChip]:
    """A chip whose ways to compute some operators are guesses."""

    class Guessing(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            table = self.operators.implementations
            guesses = [dataclasses.replace(i, unproved=i.op in ops) for i in table]
            self.operators = OperatorTable(tuple(guesses))

    return Guessing


def test_guess_is_run_and_so_is_what_serves_without_it(folder) -> None:
    asked = config(folder, max_running_requests=None)
    with opened_on(asked, guessing("paged_attention")) as opened:
        served = with_guesses(asked, opened, {"fake.paged_attention"})
        now = with_guesses(asked, opened, ())
        opened.limits, opened.chunk = now.limits, now.chunk
        calls = RealShapes(asked, opened).calls()
    assert (served.composed_attention, now.composed_attention) == (False, True)
    attention = [c for c in calls if c.spec.op == "paged_attention"]
    rows = {sizes(c, "page_table")[0] for c in attention}
    assert rows == {1, served.limits.max_running} and served.limits.max_running > 4
    recipe = [c for c in calls if c.spec.op == "batched_matmul"]
    assert recipe and max(sizes(c, "a")[1] for c in recipe) <= 2 * now.chunk < served.chunk


def test_chip_is_watched_while_it_works(folder) -> None:
    seen = []

    @contextmanager
    def watch(name: str) -> Iterator[None]:
        seen.append(name)
        yield
        seen.append("")

    asked = config(folder)
    with opened_on(asked) as opened:
        shapes = RealShapes(asked, opened, watch)
        call = shapes.calls()[0]
        assert seen == []
        shapes.answer(call)
    assert seen == [call.implementation.id, ""]


def test_worst_answer_of_each_implementation_is_the_furthest_off(folder) -> None:
    asked = config(folder)
    with opened_on(asked) as opened:
        calls = RealShapes(asked, opened).calls()
    linears = [c for c in calls if c.spec.op == "linear"][:3]
    other = next(c for c in calls if c.spec.op == "rms_norm")
    verdicts = [Verdict(e < 1, e, 1.0, None, str(e)) for e in (2.0, 5.0, 0.5)]
    found = [Answer(*pair) for pair in zip(linears, verdicts, strict=True)]
    found.append(Answer(other, Verdict(False, float("inf"), 1.0, None, "inf")))
    assert [a.verdict.text for a in worst(found)] == ["5.0", "inf"]


def test_answer_tells_its_shapes(folder) -> None:
    asked = config(folder)
    with opened_on(asked) as opened:
        calls = {c.spec.op: c for c in RealShapes(asked, opened).calls()}
    assert calls["linear"].sizes == "x float32[6, 128], weight bfloat16[64, 128]"
    assert "cache float32[pages, 16, 2, 16]" in calls["paged_attention"].sizes


def test_what_could_not_have_failed_is_not_telling() -> None:
    row = TensorSpec((3,), DType.FLOAT32)
    implementation = Implementation(op="neg", id="a.neg", prepare=lambda call: lambda: None)
    call = Asked(implementation, CallSpec("neg", {"x": row}, {"y": row}, {}), {})
    for control, telling in ((None, False), (0.2, False), (0.5, True)):
        verdict = Verdict(True, 0.0, 0.1, control, "")
        assert Answer(call, verdict).telling is telling
