"""The oracle against formulas that others wrote."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from anychip.contract.catalogue import CATALOGUE
from anychip.ops.cases import cases
from anychip.ops.oracle import ORACLE, evaluate

RNG = np.random.default_rng(7)


def named(op, name):
    return next(c for c in cases(op) if c.name == name)


def close(found, wanted):
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-9, atol=1e-12)


def tensor(array):
    return torch.from_numpy(np.array(array)).double()


def test_every_operator_has_an_oracle():
    assert set(ORACLE) == set(CATALOGUE)


@pytest.mark.parametrize(
    ("op", "theirs"),
    [
        ("exp", torch.exp),
        ("log", torch.log),
        ("rsqrt", torch.rsqrt),
        ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh),
        ("silu", F.silu),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("round", torch.round),
        ("neg", torch.neg),
        ("abs", torch.abs),
        ("cumsum", lambda x: torch.cumsum(x, -1)),
        ("reduce_mean", lambda x: x.mean(-1, keepdim=True)),
        ("reduce_min", lambda x: x.amin(-1, keepdim=True)),
    ],
)
def test_of_one_input(op, theirs):
    for case in cases(op):
        x = case.inputs["x"]
        close(case.expected().outputs[0], theirs(tensor(x)))


def test_rms_norm():
    case = named("rms_norm", "7x576")
    x, w = tensor(case.inputs["x"]), tensor(case.inputs["weight"])
    close(case.expected().outputs[0], F.rms_norm(x, (576,), w, 1e-5))


def test_add_rms_norm_normalizes_the_rounded_sum():
    import ml_dtypes

    x = np.array([[256, 1]], dtype=ml_dtypes.bfloat16)
    inputs = {"x": x, "residual": np.ones_like(x), "weight": np.ones(2, np.float32)}
    y, total = evaluate("add_rms_norm", inputs, {"eps": 0.0}).outputs
    close(total, [[257, 2]])
    close(y, F.rms_norm(torch.tensor([[256.0, 2.0]]).double(), (2,)))


def test_linear_and_lm_head():
    case = named("linear", "3x33x17 bias")
    x, w, b = (tensor(case.inputs[n]) for n in ("x", "weight", "bias"))
    close(case.expected().outputs[0], F.linear(x, w, b))
    logits = evaluate("lm_head", case.inputs, {"scale": 2.0, "softcap": 3.0}).outputs[0]
    close(logits, 3 * torch.tanh(F.linear(x, w) * 2 / 3))


def test_rotary_equals_transformers():
    case = named("rotary_embedding", "(5, 9, 3, 64) rotary 64 neox True")
    rows = tensor(case.inputs["cos_sin"])[torch.from_numpy(case.inputs["positions"]).long()]
    cos, sin = (torch.cat([half, half], -1)[None] for half in rows.split(32, -1))
    q, k = (tensor(case.inputs[n]).transpose(0, 1)[None] for n in ("q", "k"))
    wanted = apply_rotary_pos_emb(q, k, cos, sin)
    for found, theirs in zip(case.expected().outputs, wanted, strict=True):
        close(found, theirs[0].transpose(0, 1))


def test_interleaved_rotary_turns_complex_numbers():
    case = named("rotary_embedding", "(7, 4, 1, 20) rotary 8 neox False")
    rows = case.inputs["cos_sin"].astype(np.float64)[case.inputs["positions"]]
    q = case.inputs["q"].astype(np.float64)
    turned = (q[..., 0:8:2] + 1j * q[..., 1:8:2]) * (rows[:, :4] + 1j * rows[:, 4:])[:, None]
    wanted = q.copy()
    wanted[..., 0:8:2], wanted[..., 1:8:2] = turned.real, turned.imag
    close(case.expected().outputs[0], wanted)


def dense_row(case, half, b):
    pages = getattr(case.inputs["cache"], half)[case.inputs["page_table"][b]]
    flat = pages.reshape(-1, *pages.shape[2:])[: case.inputs["kv_lens"][b]]
    return tensor(flat).transpose(0, 1)


@pytest.mark.parametrize("name", ["mixture", "decode", "window 8", "not causal", "scale"])
def test_paged_attention_equals_scaled_dot_product_attention(name):
    case = named("paged_attention", name)
    found, cu_q = case.expected().outputs[0], case.inputs["cu_q"]
    window = case.attrs.get("window", 0)
    for b, length in enumerate(case.inputs["kv_lens"]):
        rows = slice(cu_q[b], cu_q[b + 1])
        p, j = case.inputs["positions"][rows][:, None], np.arange(length)[None]
        mask = (j <= p) | (not case.attrs.get("causal", True))
        mask &= (j > p - window) | (window == 0)
        q = tensor(case.inputs["q"][rows]).transpose(0, 1)
        k, v = (dense_row(case, half, b) for half in "kv")
        wanted = F.scaled_dot_product_attention(
            *(q[None], k[None], v[None]),
            attn_mask=torch.from_numpy(mask),
            scale=case.attrs["scale"],
            enable_gqa=True,
        )
        close(found[rows], wanted[0].transpose(0, 1))


def test_a_token_that_sees_nothing_gives_zeros():
    case = named("paged_attention", "a row sees nothing")
    y = case.expected().outputs[0]
    assert not y[-1].any()
    assert y[:-1].any()


def test_unwritten_slots_are_not_read():
    case, clean = (named("paged_attention", n) for n in ("unwritten slots are NaN", "scale"))
    assert np.isnan(case.inputs["cache"].k).any()
    close(case.expected().outputs[0], clean.expected().outputs[0])


def test_kv_write_changes_its_slots_alone():
    case = named("kv_write", "scattered")
    cache, slots = case.inputs["cache"], case.inputs["slots"]
    for half, rows in (("k", case.inputs["k"]), ("v", case.inputs["v"])):
        before = getattr(cache, half).reshape(20, 3, 64)
        after = getattr(case.expected().written["cache"], half).reshape(20, 3, 64)
        for slot in range(20):
            here = np.flatnonzero(slots == slot)
            wanted = rows[here[0]] if len(here) else before[slot]
            np.testing.assert_array_equal(after[slot], wanted)


def test_softmax_and_log_softmax():
    logits = RNG.normal(0, 30, (4, 100)).astype(np.float32)
    close(evaluate("softmax", {"logits": logits}, {}).outputs[0], F.softmax(tensor(logits), -1))
    found = evaluate("log_softmax", {"logits": logits}, {}).outputs[0]
    close(found, F.log_softmax(tensor(logits), -1))


def test_sort_is_stable():
    case = named("sort", "ties")
    values, indices = case.expected().outputs
    theirs = torch.sort(tensor(case.inputs["x"]), dim=-1, descending=True, stable=True)
    close(values, theirs.values)
    np.testing.assert_array_equal(indices, theirs.indices)


def brute_force(p, top_k, top_p, min_p):
    """The distribution by its definition, one token at a time."""
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    kth = p[order[top_k - 1]] if 1 <= top_k <= len(p) else 0.0
    left = [i for i in order if p[i] >= kth]
    mass, total, last = 0.0, sum(p[i] for i in left), left[-1]
    for i in left:
        mass += p[i] / total
        if mass >= top_p:
            last = i
            break
    floor = max(kth, p[last] if top_p < 1 else 0.0, min_p * max(p))
    stay = np.array([x if x >= floor else 0.0 for x in p])
    return stay / stay.sum()


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.6, 0.0), (0, 1.0, 0.2), (7, 0.8, 0.1), (1, 0.1, 0.0)],
)
def test_sample_follows_the_brute_force_distribution(top_k, top_p, min_p):
    """A fine grid of noise visits each token as often as its probability says."""
    size, count = 12, 4000
    row = RNG.normal(0, 1.5, size).astype(np.float32)
    p = torch.softmax(tensor(row) / 0.7, -1).numpy()
    inputs = {
        "logits": np.tile(row, (count, 1)),
        "temperature": np.full(count, 0.7, np.float32),
        "top_k": np.full(count, top_k, np.int32),
        "top_p": np.full(count, top_p, np.float32),
        "min_p": np.full(count, min_p, np.float32),
        "noise": ((np.arange(count) + 0.5) / count).astype(np.float32),
    }
    tokens = evaluate("sample", inputs, {}).outputs[0]
    assert (np.diff(tokens) >= 0).all()
    found = np.bincount(tokens, minlength=size) / count
    np.testing.assert_allclose(found, brute_force(p, top_k, top_p, min_p), atol=1.5 / count)


@pytest.mark.parametrize("op", ["argmax", "greedy"])
def test_the_largest_is_never_nan(op):
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 2], [nan, -inf, -inf], [nan, nan, nan], [nan, inf, 1]], np.float32)
    assert evaluate(op, {"x": x, "logits": x}, {}).outputs[0].tolist() == [2, 1, -1, 1]


def test_sample_says_where_nothing_can_be_drawn():
    nan, inf = np.nan, np.inf
    logits = np.array([[nan, 1, nan], [nan] * 3, [-inf] * 3, [inf, 1, nan], [nan] * 3], np.float32)
    ones = np.ones(5, np.float32)
    inputs = {"logits": logits, "temperature": np.array([1, 1, 1, 1, 0], np.float32)}
    inputs |= {"top_k": np.zeros(5, np.int32), "top_p": ones * 0.9, "min_p": ones * 0.1}
    tokens = evaluate("sample", {**inputs, "noise": ones * 0.5}, {}).outputs[0]
    assert tokens.tolist() == [1, -1, -1, -1, -1]


def test_ties_at_the_top_k_threshold_all_stay():
    inputs = {
        "logits": np.array([[1, 3, 1, 1, 0]] * 64, dtype=np.float32),
        "temperature": np.ones(64, np.float32),
        "top_k": np.full(64, 2, np.int32),
        "top_p": np.ones(64, np.float32),
        "min_p": np.zeros(64, np.float32),
        "noise": (np.arange(64) / 64).astype(np.float32),
    }
    tokens = evaluate("sample", inputs, {}).outputs[0]
    assert set(tokens) == {0, 1, 2, 3}


def test_a_mask_is_bits_from_the_lowest():
    logits = RNG.normal(size=(3, 77)).astype(np.float32)
    mask = RNG.integers(-(2**31), 2**31, (3, 3)).astype(np.int32)
    found = evaluate("mask_logits", {"logits": logits, "mask": mask}, {}).outputs[0]
    for row in range(3):
        bits = sum((int(word) % 2**32) << (32 * place) for place, word in enumerate(mask[row]))
        for token in range(77):
            assert found[row, token] == (logits[row, token] if bits >> token & 1 else -np.inf)


def test_adjusted_logits_equal_the_penalties_of_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = torch.from_numpy(RNG.normal(0, 3, (2, 50)).astype(np.float32))
    seen = torch.from_numpy(np.stack([RNG.permutation(50)[:9] for _ in range(2)]))
    wanted = RepetitionPenaltyLogitsProcessor(1.25)(seen, logits.double())
    wanted.scatter_add_(1, seen, torch.full(seen.shape, -0.75).double())
    rows = np.repeat(np.arange(2), 9).astype(np.int32)
    inputs = {"logits": logits.numpy(), "rows": rows, "ids": seen.numpy().reshape(-1)}
    inputs |= {"repetition": np.full(18, 1.25), "bias": np.full(18, -0.75)}
    close(evaluate("adjust_logits", inputs, {}).outputs[0], wanted)


def test_log_probabilities_equal_those_of_torch():
    logits = RNG.normal(0, 4, (5, 200)).astype(np.float32)
    theirs = F.log_softmax(tensor(logits), -1)
    values, ids = evaluate("top_logprobs", {"logits": logits}, {"n": 7}).outputs
    close(values, theirs.topk(7).values)
    np.testing.assert_array_equal(ids, theirs.topk(7).indices)
    sampled, given = np.arange(5) * 30, np.array([-1, 3, -1, 199, 0])
    inputs = {"logits": logits, "sampled": sampled, "given": given}
    logprob, rank = evaluate("token_logprobs", inputs, {}).outputs
    tokens = [0, 3, 60, 199, 0]
    close(logprob, theirs[range(5), tokens])
    order = theirs.argsort(dim=-1, descending=True).tolist()
    assert rank.tolist() == [order[row].index(token) + 1 for row, token in enumerate(tokens)]


def test_no_token_has_no_logprob_and_nan_counts_as_ruled_out():
    nan, inf = np.nan, np.inf
    logits = np.array([[nan, 1, 1], [nan, 1, 1], [nan] * 3, [-inf] * 3, [inf, 1, 0]], np.float32)
    none = np.full(5, -1)
    inputs = {"logits": logits, "sampled": np.array([2, -1, 0, 0, 1]), "given": none}
    logprob, rank = evaluate("token_logprobs", inputs, {}).outputs
    close(logprob, [-np.log(2), nan, nan, nan, nan])
    assert rank.tolist() == [1, 0, 1, 1, 2]
    values, ids = evaluate("top_logprobs", {"logits": logits[:1]}, {"n": 3}).outputs
    close(values, [[-np.log(2), -np.log(2), -inf]])
    assert ids.tolist() == [[1, 2, 0]]
