"""Choosing tokens, against the words of the signature written out in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cpu_calls import normal, relative

from anychip.ops.cases import cases
from anychip.ops.check import check_case


@pytest.mark.parametrize("vocabulary", [1, 37, 5000])
def test_softmax_and_its_logarithm(each, vocabulary):
    x = normal(1, 3, vocabulary) * 5
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    assert relative(each.call("softmax", logits=x), p) < 1e-6
    logs = each.call("log_softmax", logits=x)
    assert np.abs(logs - np.log(p)).max() < 1e-5


def test_greedy_takes_the_lowest_of_equals(each):
    x = normal(1, 5, 1003)
    x[0, [7, 300, 1002]] = 9
    x[1, 1002] = 9
    x[2] = -np.inf
    x[3, ::2] = np.nan
    x[4] = np.nan
    with np.errstate(invalid="ignore"):
        third = int(np.nanargmax(x[3]))
    assert each.call("greedy", logits=x).tolist() == [7, 1002, 0, third, -1]


def kept(p, top_k, top_p, min_p):
    """Which tokens stay, by the signature."""
    limit = min_p * p.max()
    left = p
    if top_k >= 1:
        kth = np.sort(p)[::-1][min(top_k, len(p)) - 1]
        limit, left = max(limit, kth), p[p >= kth]
    if top_p < 1:
        down = np.sort(left)[::-1]
        limit = max(limit, down[np.searchsorted(np.cumsum(down / down.sum()), top_p)])
    return p >= limit


CUTS = [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.7, 0.0), (0, 1.0, 0.3), (50, 0.6, 0.05), (1, 1.0, 0.0)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_sample_is_the_inverse_of_the_distribution(each, cut):
    rows, n = 64, 1201
    x = np.repeat(normal(3, 1, n) * 2, rows, axis=0)
    temperature = np.full(rows, 0.8, np.float32)
    noise = ((np.arange(rows) + 0.5) / rows).astype(np.float32)
    top_k, top_p, min_p = (np.full(rows, c) for c in cut)
    tokens = each.call(
        "sample",
        logits=x,
        temperature=temperature,
        top_k=top_k.astype(np.int32),
        top_p=top_p.astype(np.float32),
        min_p=min_p.astype(np.float32),
        noise=noise,
    )
    z = x[0].astype(np.float64) / np.float32(0.8)
    p = np.exp(z - z.max())
    p = np.where(kept(p / p.sum(), *cut), p, 0)
    running = np.cumsum(p) / p.sum()
    before = np.concatenate([[0.0], running])[tokens]
    assert (p[tokens] > 0).all()
    assert (running[tokens] > noise - 1e-5).all() and (before <= noise + 1e-5).all()


@pytest.mark.parametrize("name", ["NaN among numbers", "nothing to choose"])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_sample_agrees_with_the_oracle_about_nan(each, name, cut):
    case = next(c for c in cases("sample") if c.name == name)
    cuts = dict(zip(("top_k", "top_p", "min_p"), cut, strict=True))
    inputs = {**case.inputs, **{n: np.full_like(case.inputs[n], v) for n, v in cuts.items()}}
    case = replace(case, inputs=inputs, control=None)
    tokens = each.call("sample", **inputs)
    assert each.last_id.endswith(f"{each.chip.capabilities().facts['isa']}.sample")
    assert check_case(case, {"tokens": tokens}).ok
    assert ((tokens == -1) == (case.expected().outputs[0] == -1)).all()


def test_a_nan_before_minus_infinity_is_not_the_largest(each):
    x = np.full((1, 37), -np.inf, np.float32)
    x[0, :3] = np.nan
    assert each.call("greedy", logits=x).tolist() == [3]


def test_temperature_zero_is_greedy(each):
    x, one = normal(1, 3, 100), np.ones(3, np.float32)
    cuts = {"top_k": np.zeros(3, np.int32), "top_p": one, "min_p": one * 0}
    heat = np.array([0, 1, 0], np.float32)
    tokens = each.call("sample", logits=x, temperature=heat, noise=one * 0.999, **cuts)
    best = x.argmax(-1)
    assert tokens[[0, 2]].tolist() == best[[0, 2]].tolist() and tokens[1] != best[1]
