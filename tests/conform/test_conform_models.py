"""Level models: sound chips pass with room to spare, a defect is found and its operator named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anychip.chips.fake.registration import FakeChip
from anychip.conform.index import CHECKS
from anychip.conform.model_runs import Answer, Truth, apart
from anychip.conform.models import _Tally, checks
from anychip.conform.proof import Level, Proof, Status, prove
from anychip.conform.subject import Subject
from anychip.contract.discovery import load_chip
from anychip.contract.operators import Call, Implementation, Launch
from anychip.contract.registration import read_options
from anychip.contract.tensor import IndexPair, Tensor
from conform.defective import chip_with, other_attrs

IDS = ("E1", "E2", "E3", "E4")


def proofs(subject: Subject, *keys: str) -> dict[str, Proof]:
    """Proofs by key, of the keys asked for or of all."""
    try:
        return {c.key: prove(c, subject) for c in checks(subject) if not keys or c.key in keys}
    finally:
        subject.close()


def subject_of(cls: type[FakeChip] = FakeChip, **options: str) -> Subject:
    return Subject(cls, 0, read_options(cls, {"memory": "64M", **options}))


def assert_well_within(found: dict[str, Proof]) -> None:
    for key, proof in found.items():
        assert proof.status is Status.PASS, f"{key}: {proof.text}"
        assert proof.figures["error"] < 0.6 * proof.figures["limit"], f"{key}: {proof.text}"
        assert proof.figures["control"] > 4 * proof.figures["limit"]


@pytest.mark.parametrize("name", ["cpu", "fake"])
def test_sound_chips_pass_in_every_dtype_well_within_the_limit(name: str) -> None:
    subject = Subject(load_chip(name), 0, read_options(load_chip(name), {}))
    dtypes = [d.value for d in subject.chip.capabilities().activation_dtypes]
    found = proofs(subject)
    assert {f"{i} {d}" for i in IDS for d in dtypes} <= set(found)
    assert_well_within(found)


@pytest.fixture
def one_thread():
    """Torch's threads cost more than they give where tensors are tiny."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_torch_passes_well_within_the_limit() -> None:
    options = read_options(load_chip("torch"), {"device": "cpu"})
    keys = ("E1 float32", "E1 bfloat16", "E1 float16", "E2 bfloat16", "E3 bfloat16", "E4 float32")
    found = proofs(Subject(load_chip("torch"), 0, options), *keys)
    assert set(found) == set(keys)
    assert_well_within(found)


def test_every_check_is_one_of_the_index() -> None:
    subject = subject_of()
    found = checks(subject)
    subject.close()
    assert {c.id for c in found} == set(IDS)
    assert all(c.level is Level.MODELS is CHECKS[c.id][0] for c in found)
    assert len({c.key for c in found}) == len(found)


def test_block_formats_are_asked_where_the_chip_takes_them() -> None:
    subject = Subject(load_chip("cpu"), 0, read_options(load_chip("cpu"), {}))
    keys = {c.key for c in checks(subject)}
    subject.close()
    assert {"E1 float32 q8_0", "E4 bfloat16 q8_0"} <= keys
    assert not any("q8_0" in c.key for c in checks(subject_of()))


def test_composed_operators_pass_as_well() -> None:
    (proof,) = proofs(subject_of(primitives_only="true"), "E1 float32").values()
    assert proof.status is Status.PASS, proof.text


def test_wrong_rotary_is_named_with_its_layer() -> None:
    cls = chip_with({"rotary_embedding": other_attrs(lambda attrs: {"neox": not attrs["neox"]})})
    for key, proof in proofs(subject_of(cls), "E1 float32", "E1 bfloat16").items():
        assert proof.status is Status.FAIL, key
        assert "wrong from layer 0 on" in proof.text
        assert "first operator that diverges: rotary_embedding (" in proof.text
        assert "fake.rotary_embedding" in proof.text


def attention(wrong) -> type[FakeChip]:
    """A chip whose attention takes another call where `wrong(call, index values)` gives one."""

    def changed(chip: FakeChip, sound: Implementation) -> Implementation:
        def prepare(call: Call) -> Launch:
            right = sound.prepare(call)

            def launch() -> None:
                values = {
                    n: v.host.tolist() for n, v in call.inputs.items() if isinstance(v, IndexPair)
                }
                other = wrong(call, values)
                (right if other is None else sound.prepare(other))()

            return launch

        return replace(sound, prepare=prepare)

    return chip_with({"paged_attention": changed})


def scaled(call: Call, factor: float) -> Call:
    """The same attention with another scale: a prompt of one token does not show it."""
    attrs = {**call.attrs, "scale": factor * call.attrs["scale"]}
    return replace(call, spec=replace(call.spec, attrs=attrs))


def in_decode(call: Call, values: dict) -> Call | None:
    return scaled(call, 0.5) if len(values["positions"]) == 1 else None


def in_later_chunks(call: Call, values: dict) -> Call | None:
    later = len(values["positions"]) > 1 and values["positions"][0] > 0
    return scaled(call, 0.5) if later else None


def pages_of_the_first_row(call: Call, values: dict) -> Call | None:
    """In a batch every row reads the first row's pages."""
    pair = call.inputs["page_table"]
    rows, _ = pair.device.shape
    if rows == 1:
        return None
    table = pair.device
    first = Tensor(table.shape, table.dtype, (0, 1), buffer=table.buffer, offset=table.offset)
    return replace(call, inputs={**call.inputs, "page_table": IndexPair(pair.host, first)})


def test_broken_attention_is_named_with_its_layer() -> None:
    cls = chip_with({"paged_attention": other_attrs(lambda attrs: {"scale": 0.5 * attrs["scale"]})})
    (proof,) = proofs(subject_of(cls), "E1 float32").values()
    assert proof.status is Status.FAIL
    assert "wrong from layer 0 on, pages of 1, a prompt of 7: relative L2" in proof.text
    assert "first operator that diverges: paged_attention (" in proof.text


@pytest.mark.parametrize(
    ("wrong", "failing"),
    [
        (in_decode, {"E2", "E3", "E4"}),
        (in_later_chunks, {"E3", "E4"}),
        (pages_of_the_first_row, {"E4"}),
    ],
)
def test_what_one_prompt_alone_does_not_show_fails_where_it_shows(wrong, failing: set) -> None:
    found = proofs(subject_of(attention(wrong)), *(f"{i} float32" for i in IDS))
    statuses = {key.split()[0]: proof.status for key, proof in found.items()}
    for id in IDS:
        assert statuses[id] is (Status.FAIL if id in failing else Status.PASS), found
    for id in failing:
        assert "first operator that diverges: paged_attention (" in found[f"{id} float32"].text


def test_a_missing_operator_is_missing() -> None:
    found = proofs(subject_of(primitives_only="true", without="rsqrt"), "E1 float32")
    (proof,) = found.values()
    assert proof.status is Status.MISSING
    assert "'rsqrt' is missing" in proof.text


class Narrow(FakeChip):
    """One row, eight tokens a step."""

    _rows = 1

    def capabilities(self):
        return replace(super().capabilities(), max_rows=self._rows, max_tokens=8)


class TwoRows(Narrow):
    """Two rows."""

    _rows = 2


def test_limits_of_the_chip_are_kept() -> None:
    seen: list[tuple[int, int]] = []

    def watched(call: Call, values: dict) -> None:
        seen.append((len(values["positions"]), len(values["kv_lens"])))

    for base, status in ((Narrow, Status.UNSUPPORTED), (TwoRows, Status.PASS)):
        cls = type("Watched", (attention(watched), base), {})
        seen.clear()
        found = proofs(subject_of(cls), *(f"{i} float32" for i in IDS))
        assert [p.status for p in found.values()] == [*[Status.PASS] * 3, status], found
        assert max(tokens for tokens, _ in seen) == 8
        assert max(rows for _, rows in seen) == base._rows
        assert status is Status.PASS or "max_rows is 1" in found["E4 float32"].text


def test_nothing_stays_allocated() -> None:
    subject = subject_of(chip_with({"linear": other_attrs(lambda attrs: {})}))
    used = subject.chip.memory.info().used
    for check in checks(subject):
        if check.subject == "float32":
            assert prove(check, subject).status is Status.PASS
    assert subject.chip.memory.info().used == used
    subject.close()


def answer(logits: np.ndarray, token: int) -> Answer:
    return Answer((0,), logits[None].astype(np.float32), (token,))


def test_tokens_may_differ_at_a_tie_alone() -> None:
    logits = np.array([1.0, 0.999, -4.0])
    truth = Truth(logits[None], 0.1)
    noisy = np.array([1.0, 1.003, -4.0])
    assert apart(truth, answer(logits, 0), answer(noisy, 1), 0.1)[1] == ""
    assert "token 2 instead of 0" in apart(truth, answer(logits, 0), answer(noisy, 2), 0.1)[1]
    assert "token 1 instead of 0" in apart(truth, answer(logits, 0), answer(logits, 1), 0.1)[1]


def test_nan_logits_are_wrong_whatever_the_tokens() -> None:
    truth = Truth(np.ones((1, 3)), 0.1)
    error, problem = apart(truth, answer(np.ones(3), 0), answer(np.full(3, np.nan), -1), 0.1)
    assert error == float("inf")
    assert problem


def test_a_limit_that_could_show_nothing_is_inconclusive() -> None:
    tally = _Tally()
    tally.add(0.1, 0.3, 1.1)
    assert tally.proof("x").status is Status.INCONCLUSIVE
    tally.add(0.2, 0.25, 1.1)
    proof = tally.proof("x")
    assert proof.status is Status.PASS
    assert proof.figures == {"error": 0.2, "limit": 0.25, "control": 1.1}
