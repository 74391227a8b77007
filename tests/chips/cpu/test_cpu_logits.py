"""Masks, changes of single logits and log-probabilities: every instruction set, and in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cpu_calls import normal

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.errors import ChipError
from anychip.ops.cases import cases
from anychip.ops.cases.draw import draw
from anychip.ops.cases.logits import entries, mask_of, tokens_of
from anychip.ops.check import check_case

OPS = ("mask_logits", "adjust_logits", "token_logprobs", "top_logprobs")


@pytest.mark.parametrize("op", OPS)
def test_every_case_agrees_with_the_oracle(each, op):
    names = [a.name for a in CATALOGUE[op].outputs]
    for case in cases(op):
        found = each.call(op, dict(case.attrs), **case.inputs)
        arrays = found if isinstance(found, list) else [found]
        verdict = check_case(case, dict(zip(names, arrays, strict=True)))
        assert verdict.ok, f"{case.name}: {verdict.text}"
        assert each.last_id.endswith(f"{each.chip.capabilities().facts['isa']}.{op}")


def in_place(calls, op, inputs):
    """What the logits' own memory holds after a call whose `y` it is."""
    implementation, call = calls.call_of(op, inputs, {})
    logits = call.inputs["logits"]
    assert ("y", "logits") in implementation.aliases
    implementation.prepare(replace(call, outputs={"y": logits}))()
    return calls.get(logits)


@pytest.mark.parametrize("size", [31, 96, 1003])
def test_masks_and_changes_work_in_place(each, size):
    source, x = draw("in place"), normal(2, 5, size)
    mask = mask_of(source, 5, size)
    mask[0], mask[1] = -1, 0
    changes = entries(source, 5, size, 60, padding=3)
    for op, inputs in (("mask_logits", {"mask": mask}), ("adjust_logits", changes)):
        apart = each.call(op, logits=x, **inputs)
        found = in_place(each, op, {"logits": x, **inputs})
        np.testing.assert_array_equal(found, apart)
        assert not np.array_equal(found, x)


def test_an_entry_outside_of_the_logits_is_told_and_changes_nothing(cpu):
    x = normal(1, 3, 33)
    inputs = {"logits": x, **entries(draw("outside"), 3, 33, 4)}
    for name, bad, text in (("rows", 3, "row index"), ("ids", 33, "token"), ("ids", -1, "token")):
        wrong = inputs[name].copy()
        wrong[2] = bad
        launch, outputs = cpu.prepared("adjust_logits", {**inputs, name: wrong}, {})
        with pytest.raises(ChipError, match=text):
            launch()
        assert np.isnan(cpu.get(outputs["y"])).all()


def test_a_token_outside_of_the_vocabulary_is_told(cpu):
    inputs = {"logits": normal(1, 4, 33), **tokens_of(draw("tokens"), 4, 33)}
    inputs["given"][2] = 33
    with pytest.raises(ChipError, match="token is outside of the vocabulary"):
        cpu.call("token_logprobs", **inputs)


@pytest.mark.parametrize("n", [1, 7, 20, 64, 999, 1003])
@pytest.mark.parametrize("kind", ["up", "down", "equal", "few values"])
def test_the_largest_come_in_order_whatever_order_they_lie_in(each, n, kind):
    size = 1003
    rows = {
        "up": np.arange(size),
        "down": -np.arange(size),
        "equal": np.zeros(size),
        "few values": np.arange(size) * 7919 % 5,
    }
    x = np.stack([rows[kind], np.roll(rows[kind], 500)]).astype(np.float32) / 64
    values, ids = each.call("top_logprobs", {"n": n}, logits=x)
    wanted = np.argsort(-x, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(ids, wanted)
    total = np.log(np.exp(x.astype(np.float64)).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(values, np.take_along_axis(x, wanted, 1) - total, rtol=1e-6)


def test_a_logprob_near_zero_keeps_its_digits(each):
    """log(1 + e) for a small e: what the sum of the others' weights is."""
    x = np.full((1, 5000), -8.0, np.float32)
    x[0, 4321] = 8.0
    sampled = np.array([4321], np.int32)
    logprob, rank = each.call("token_logprobs", logits=x, sampled=sampled, given=sampled * 0 - 1)
    assert logprob[0] == pytest.approx(-np.log1p(4999 * np.exp(-16.0)), rel=1e-5)
    assert rank.tolist() == [1]
