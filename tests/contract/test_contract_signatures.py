"""Signatures: patterns, dtypes, what every operator's outputs are inferred to be."""

from __future__ import annotations

import pytest

from anychip.contract.cache import CacheGroup, CacheSpec
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.catalogue.primitives import BINARY, COMPARE, REDUCE, UNARY, broadcast
from anychip.contract.dtype import DType
from anychip.contract.signature import (
    REQUIRED,
    ArgKind,
    SignatureError,
    Tier,
    evaluate,
    infer_outputs,
)
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import WeightSpec

T, K, N, H, G, D, V, R = 5, 8, 12, 4, 2, 6, 32, 3
BF16, F32, I32, BOOL = DType.BFLOAT16, DType.FLOAT32, DType.INT32, DType.BOOL


def x(*shape, dtype=BF16):
    return TensorSpec(shape, dtype)


def ints(*shape):
    return TensorSpec(shape, I32)


def weight(n, k):
    return WeightSpec("q4_1", (n, k), 0, dense=False)


CACHE = CacheSpec(CacheGroup(1, G, D, DType.FLOAT16, 16), 9)
BATCH = {
    "page_table": ints(2, 7),
    "cu_q": ints(3),
    "kv_lens": ints(2),
    "positions": ints(T),
    "token_rows": ints(T),
}
ATTENTION = {"scale": 1.0, "causal": True, "window": 0, "softcap": 0.0}
ROTARY = {"rotary_dim": D, "neox": True}
LATENT = CacheSpec(CacheGroup(1, 1, 10, BF16, 16, latent=7), 9)
ROUTE = {
    "k": 2,
    "scoring": "sigmoid",
    "renormalize": True,
    "groups": 4,
    "groups_kept": 2,
    "group_score": "top2",
    "scale": 1.0,
}
EXPERTS = {
    "x": x(T, K),
    "gate_up": weight(3 * 2 * N, K),
    "gate_up_bias": x(3, 2 * N, dtype=F32),
    "down": weight(3 * K, N),
    "down_bias": None,
    "weights": x(T, 2, dtype=F32),
    "ids": ints(T, 2),
}
EXPERT = {"experts_count": 3, "activation": "silu", "alpha": 0.0, "limit": 0.0}
AB = {"a": x(4, 1, 3), "b": x(2, 3)}
LOGITS = {"logits": x(R, V, dtype=F32)}
SAMPLE = {
    **LOGITS,
    **{name: x(R, dtype=F32) for name in ("temperature", "top_p", "min_p", "noise")},
    "top_k": ints(R),
}
FACTORS = {"repetition": x(7, dtype=F32), "bias": x(7, dtype=F32)}
BLOCK = {"x": x(T, K), "residual": None, "norm": x(K, dtype=F32)}
Q, KEY = x(T, H, D), x(T, G, D)
STATES = {
    "state_from": ints(2),
    "state_to": ints(2),
    **{name: BATCH[name] for name in ("cu_q", "positions", "token_rows")},
}
GATES = {"decay": x(T, H, dtype=F32), "beta": x(T, H, dtype=F32)}

EXPECTED = {
    "copy": ({"x": x(2, 3)}, {}, [x(2, 3)]),
    "cast": ({"x": x(2, 3)}, {"dtype": "int32"}, [ints(2, 3)]),
    "fill": ({}, {"shape": (2, 3), "value": 1.0, "dtype": "bool"}, [x(2, 3, dtype=BOOL)]),
    "arange": ({}, {"length": 4, "dtype": "int32"}, [ints(4)]),
    "cumsum": ({"x": x(2, 3)}, {}, [x(2, 3)]),
    **{name: ({"x": x(2, 3)}, {}, [x(2, 3)]) for name in UNARY},
    **{name: (AB, {}, [x(4, 2, 3)]) for name in BINARY},
    **{name: (AB, {}, [x(4, 2, 3, dtype=BOOL)]) for name in COMPARE},
    "where": ({"condition": x(5, 1, 1, 1, dtype=BOOL), **AB}, {}, [x(5, 4, 2, 3)]),
    **{name: ({"x": x(2, 3)}, {}, [x(2, 1)]) for name in REDUCE},
    "argmax": ({"x": x(2, 3)}, {}, [ints(2)]),
    "gather_rows": ({"table": x(9, 2, 3), "index": ints(4, 5)}, {}, [x(4, 5, 2, 3)]),
    "scatter_rows": ({"target": x(9, 3), "source": x(4, 3), "index": ints(4)}, {}, []),
    "scatter_add_rows": (
        {"target": x(9, 3, dtype=F32), "source": x(4, 3, dtype=F32), "index": ints(4)},
        {},
        [],
    ),
    "topk": ({"x": x(2, 7)}, {"k": 3}, [x(2, 3), ints(2, 3)]),
    "sort": ({"x": x(2, 7)}, {}, [x(2, 7), ints(2, 7)]),
    "histogram": ({"index": ints(8)}, {"bins": 5}, [ints(5)]),
    "matmul": ({"a": x(2, 3), "b": x(4, 3)}, {"transpose_b": True, "dtype": ""}, [x(2, 4)]),
    "batched_matmul": (
        {"a": x(6, 2, 3), "b": x(6, 3, 4)},
        {"transpose_b": False, "dtype": "float32"},
        [x(6, 2, 4, dtype=F32)],
    ),
    "embedding": (
        {"tokens": ints(T), "table": weight(V, K)},
        {"dtype": "bfloat16", "scale": 1.0},
        [x(T, K)],
    ),
    "rms_norm": ({"x": x(T, K), "weight": x(K, dtype=F32)}, {"eps": 1e-5}, [x(T, K)]),
    "add_rms_norm": (
        {"x": x(T, K), "residual": x(T, K), "weight": x(K, dtype=F32)},
        {"eps": 1e-5},
        [x(T, K), x(T, K)],
    ),
    "rotary_embedding": (
        {"q": Q, "k": KEY, "positions": ints(T), "cos_sin": x(50, D, dtype=F32)},
        ROTARY,
        [Q, KEY],
    ),
    "linear": ({"x": x(T, K), "weight": weight(N, K), "bias": None}, {}, [x(T, N)]),
    "lm_head": (
        {"x": x(T, K), "weight": weight(V, K)},
        {"scale": 1.0, "softcap": 0.0},
        [x(T, V, dtype=F32)],
    ),
    "qk_norm": (
        {"q": Q, "k": KEY, "q_weight": x(D, dtype=F32), "k_weight": x(D, dtype=F32)},
        {"eps": 1e-6},
        [Q, KEY],
    ),
    "swiglu_clamp_and_mul": ({"x": x(T, 2 * N)}, {"alpha": 1.7, "limit": 7.0}, [x(T, N)]),
    "route_experts": (
        {"logits": x(T, 16, dtype=F32), "bias": None},
        ROUTE,
        [x(T, 2, dtype=F32), ints(T, 2)],
    ),
    "grouped_linear": (
        {"x": x(T, K), "weight": weight(3 * N, K), "experts": ints(T), "bias": None},
        {"experts_count": 3},
        [x(T, N)],
    ),
    "expert_mlp": (EXPERTS, EXPERT, [x(T, K)]),
    "sink_attention": (
        {"q": Q, "cache": CACHE, **BATCH, "sinks": x(H, dtype=F32)},
        ATTENTION,
        [Q],
    ),
    "latent_write": ({"cache": LATENT, "latent": x(T, 10), "slots": ints(T)}, {}, []),
    "latent_attention": (
        {"q": x(T, H, 10), "cache": LATENT, **BATCH},
        {"value_dim": 7, **ATTENTION},
        [x(T, H, 7)],
    ),
    "expanded_attention": (
        {"q": x(T, H, 8), "cache": LATENT, "up": x(H, 9, 7), **BATCH},
        {"nope_dim": 5, **ATTENTION},
        [x(T, H, 4)],
    ),
    "silu_and_mul": ({"x": x(T, 2 * N)}, {}, [x(T, N)]),
    "gelu_tanh_and_mul": ({"x": x(T, 2 * N)}, {}, [x(T, N)]),
    "softcap": ({"x": x(2, 3, 4)}, {"cap": 5.0}, [x(2, 3, 4)]),
    "kv_write": ({"cache": CACHE, "k": KEY, "v": KEY, "slots": ints(T)}, {}, []),
    "kv_copy_pages": ({"cache": CACHE, "sources": ints(2), "targets": ints(2)}, {}, []),
    "causal_conv1d": (
        {"x": x(T, K), "weight": x(K, 4, dtype=F32), "bias": None, "state": x(9, 3, K), **STATES},
        {"activation": "silu"},
        [x(T, K)],
    ),
    "gated_delta_rule": (
        {"q": KEY, "k": KEY, "v": x(T, H, V), **GATES, "state": x(9, H, D, V, dtype=F32), **STATES},
        {"scale": 1.0},
        [x(T, H, V)],
    ),
    "paged_attention": ({"q": Q, "cache": CACHE, **BATCH}, ATTENTION, [Q]),
    "attention_block": (
        {
            **BLOCK,
            "qkv": weight((H + 2 * G) * D, K),
            "qkv_bias": None,
            "output": weight(K, H * D),
            "output_bias": None,
            "cos_sin": x(50, D, dtype=F32),
            "cache": CACHE,
            "slots": ints(T),
            **BATCH,
        },
        {"heads": H, "eps": 1e-5, **ROTARY, **ATTENTION},
        [x(T, K), x(T, K)],
    ),
    "mlp_block": (
        {
            **BLOCK,
            "gate_up": weight(2 * N, K),
            "gate_up_bias": x(2 * N, dtype=F32),
            "down": weight(K, N),
            "down_bias": None,
        },
        {"eps": 1e-5, "activation": "silu"},
        [x(T, K), x(T, K)],
    ),
    "softmax": (LOGITS, {}, [x(R, V, dtype=F32)]),
    "log_softmax": (LOGITS, {}, [x(R, V, dtype=F32)]),
    "greedy": (LOGITS, {}, [ints(R)]),
    "sample": (SAMPLE, {}, [ints(R)]),
    "mask_logits": ({**LOGITS, "mask": ints(R, V // 32)}, {}, [x(R, V, dtype=F32)]),
    "adjust_logits": (
        {**LOGITS, "rows": ints(7), "ids": ints(7), **FACTORS},
        {},
        [x(R, V, dtype=F32)],
    ),
    "token_logprobs": (
        {**LOGITS, "sampled": ints(R), "given": ints(R)},
        {},
        [x(R, dtype=F32), ints(R)],
    ),
    "top_logprobs": (LOGITS, {"n": 5}, [x(R, 5, dtype=F32), ints(R, 5)]),
}


def test_every_operator_is_expected_here():
    assert set(EXPECTED) == set(CATALOGUE)


@pytest.mark.parametrize("op", sorted(CATALOGUE))
def test_outputs_are_inferred(op):
    inputs, attrs, outputs = EXPECTED[op]
    assert list(infer_outputs(CATALOGUE[op], inputs, attrs)) == outputs


@pytest.mark.parametrize("op", sorted(CATALOGUE))
def test_signature_is_sound(op):
    signature = CATALOGUE[op]
    names = [a.name for a in (*signature.inputs, *signature.outputs)]
    assert len(names) == len(set(names)) and signature.name == op and signature.doc
    assert set(signature.writes) <= {a.name for a in signature.inputs}
    assert signature.outputs or signature.writes
    given = EXPECTED[op][1]
    assert {a.name for a in signature.attrs if a.default is REQUIRED} <= set(given)
    assert set(given) <= {a.name for a in signature.attrs}
    for arg in signature.inputs:
        assert signature.arg(arg.name) is arg
        assert arg.kind is not ArgKind.INDEX or arg.dtype == "int32"


@pytest.mark.parametrize("op", sorted(n for n, s in CATALOGUE.items() if s.inputs))
def test_missing_input_is_named(op):
    inputs, attrs, _ = EXPECTED[op]
    required = [a.name for a in CATALOGUE[op].inputs if not a.optional]
    for name in required:
        with pytest.raises(SignatureError, match=f"'{name}' is missing"):
            infer_outputs(CATALOGUE[op], {**inputs, name: None}, attrs)


def wrong(op, **changes):
    inputs, attrs, _ = EXPECTED[op]
    return pytest.raises(SignatureError, match=op), lambda: infer_outputs(
        CATALOGUE[op], {**inputs, **changes}, attrs
    )


@pytest.mark.parametrize(
    ("op", "changes"),
    [
        ("linear", {"x": x(T, K + 1)}),
        ("linear", {"x": x(1, T, K)}),
        ("linear", {"bias": x(N, dtype=BF16)}),
        ("silu_and_mul", {"x": x(T, 7)}),
        ("add_rms_norm", {"residual": x(T, K, dtype=F32)}),
        ("add_rms_norm", {"residual": x(T + 1, K)}),
        ("kv_write", {"slots": ints(T + 1)}),
        ("kv_write", {"k": x(T, G + 1, D)}),
        ("paged_attention", {"positions": x(T, dtype=F32)}),
        ("matmul", {"b": x(4, 5)}),
        ("kv_write", {"cache": LATENT, "k": x(T, 1, 10), "v": x(T, 1, 10)}),
        ("paged_attention", {"cache": LATENT, "q": x(T, H, 10)}),
        ("sink_attention", {"cache": LATENT, "q": x(T, H, 10)}),
        ("latent_write", {"cache": CACHE, "latent": x(T, D)}),
        ("latent_attention", {"cache": CACHE, "q": Q}),
        ("expanded_attention", {"q": x(T, H, 9)}),
        ("grouped_linear", {"weight": weight(3 * N + 1, K)}),
        ("grouped_linear", {"bias": x(2, N, dtype=F32)}),
        ("expert_mlp", {"gate_up": weight(3 * N, K)}),
        ("expert_mlp", {"down": weight(3 * K + 3, N)}),
        ("expert_mlp", {"gate_up_bias": x(3, N, dtype=F32)}),
        ("greedy", {"logits": x(R, V)}),
    ],
)
def test_call_that_does_not_fit_is_refused_with_the_operator(op, changes):
    refusal, call = wrong(op, **changes)
    with refusal:
        call()


@pytest.mark.parametrize(
    ("op", "change", "said"),
    [
        ("route_experts", {"scoring": "tanh"}, "scoring tanh"),
        ("route_experts", {"group_score": "mean"}, "group_score mean"),
        ("route_experts", {"groups": 5}, "16 experts in 5 groups"),
        ("route_experts", {"groups_kept": 5}, r"groups_kept = 5 must lie in 1 \.\. 4"),
        ("route_experts", {"k": 9}, r"k = 9 must lie in 1 \.\. 8"),
        ("route_experts", {"groups": 16, "groups_kept": 8}, "top2 of groups of 1"),
        ("grouped_linear", {"experts_count": 0}, "36 rows, 0 experts"),
        ("expert_mlp", {"activation": "relu"}, "activation relu"),
        ("latent_attention", {"value_dim": 11}, r"value_dim = 11 must lie in 1 \.\. 10"),
        ("expanded_attention", {"nope_dim": 9}, "nope_dim = 9"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(op, change, said):
    inputs, attrs, _ = EXPECTED[op]
    with pytest.raises(SignatureError, match=said):
        infer_outputs(CATALOGUE[op], inputs, {**attrs, **change})


def test_topk_bounds():
    for k in (0, 8):
        with pytest.raises(SignatureError, match=rf"k = {k} must lie in 1 \.\. 7"):
            infer_outputs(CATALOGUE["topk"], {"x": x(2, 7)}, {"k": k})


def test_broadcast():
    assert broadcast("add", (4, 1, 3), (2, 1), ()) == (4, 2, 3)
    assert broadcast("add", (0, 3), (1, 3)) == (0, 3)
    with pytest.raises(SignatureError, match="add"):
        broadcast("add", (2, 3), (3, 2))


def test_patterns():
    assert evaluate("...,2*I,3", {"...": (7, 8), "I": 5}) == (7, 8, 10, 3)
    assert evaluate("", {}) == ()


def test_every_tier_is_there():
    assert {s.tier for s in CATALOGUE.values()} == set(Tier)
