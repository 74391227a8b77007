"""Cases of the fused rungs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anychip.ops.cases.attention import Heads, Ragged, batch_of, cache_of, slots_of
from anychip.ops.cases.case import Case
from anychip.ops.cases.draw import Draw, changed, draw, scaled, without
from anychip.ops.cases.network import table_of_rotations
from anychip.ops.oracle.arrays import Array


def block_start(source: Draw, tokens: int, width: int) -> dict[str, Any]:
    """What both blocks begin with."""
    return {
        "x": source.normal(tokens, width),
        "residual": source.normal(tokens, width),
        "norm": source.normal(width, mean=1, scale=0.2),
    }


def linear_weight(source: Draw, rows: int, columns: int) -> Array:
    """[rows, columns], scaled so that a product keeps its activations' size."""
    return source.normal(rows, columns, scale=columns**-0.5)


def attention_block_inputs(
    source: Draw, ragged: Ragged, heads: Heads, width: int
) -> dict[str, Any]:
    """Everything that attention_block takes; positions of at least 64."""
    rows, inner = (heads.query + 2 * heads.kv) * heads.dim, heads.query * heads.dim
    batch = batch_of(source, ragged)
    return {
        **block_start(source, sum(ragged.tokens), width),
        "qkv": linear_weight(source, rows, width),
        "qkv_bias": source.normal(rows, scale=0.5),
        "output": linear_weight(source, width, inner),
        "output_bias": source.normal(width, scale=0.5),
        "cos_sin": table_of_rotations(max(64, *ragged.lengths), heads.dim),
        "cache": cache_of(source, ragged.pages, ragged.page_size, heads),
        "slots": slots_of(batch, ragged.page_size),
        **batch,
    }


def attention_block(op: str) -> list[Case]:
    """Prefill, decode, a mixture; with and without residual and biases; every attribute."""
    source = draw(op)
    heads, mixture = Heads(4, 2, 16), Ragged((1, 6), (13, 20), 8, 1)
    inputs = attention_block_inputs(source, mixture, heads, 48)
    base = {"heads": 4, "eps": 1e-5, "rotary_dim": 16, "scale": 0.25}
    plain = {**inputs, "residual": None, "qkv_bias": None, "output_bias": None}
    tiny = {**inputs, "x": inputs["x"] * 1e-3, "residual": None}
    cases = [
        Case(op, "mixture", inputs, base, without("residual")),
        Case(op, "qkv bias", inputs, base, without("qkv_bias")),
        Case(op, "output bias", inputs, base, without("output_bias")),
        Case(op, "plain", plain, base, scaled(plain, "norm")),
        Case(op, "eps", tiny, base, changed("eps", 0.0)),
        Case(op, "scale", inputs, base, changed("scale", 1.0)),
        Case(op, "rotary_dim", inputs, base, changed("rotary_dim", 8)),
        Case(op, "not neox", inputs, {**base, "neox": False}, changed("neox", True)),
        Case(op, "not causal", inputs, {**base, "causal": False}, changed("causal", True)),
        Case(op, "window", inputs, {**base, "window": 3}, changed("window", 0)),
        Case(
            op, "softcap", inputs, {**base, "scale": 2.0, "softcap": 1.0}, changed("softcap", 0.0)
        ),
    ]
    for name, ragged in (
        ("decode", Ragged((1, 1), (9, 16), 8)),
        ("prefill", Ragged((17,), (17,), 1)),
    ):
        other = attention_block_inputs(source, ragged, heads, 48)
        cases.append(Case(op, name, other, base, scaled(other, "qkv")))
    empty = attention_block_inputs(source, Ragged((0,), (5,), 4), heads, 48)
    return [*cases, Case(op, "no tokens", empty, base)]


def mlp_inputs(source: Draw, tokens: int, width: int, inner: int) -> dict[str, Any]:
    """Everything that mlp_block takes, without biases."""
    return block_start(source, tokens, width) | {
        "gate_up": linear_weight(source, 2 * inner, width),
        "gate_up_bias": None,
        "down": linear_weight(source, width, inner),
        "down_bias": None,
    }


def mlp_block(op: str) -> list[Case]:
    """Sizes, with and without residual and biases, both activations."""
    source = draw(op)
    cases = []
    for tokens, width, inner in ((0, 8, 8), (1, 33, 17), (7, 64, 96)):
        inputs = mlp_inputs(source, tokens, width, inner)
        control = without("residual") if tokens else None
        cases.append(Case(op, f"{tokens}x{width}x{inner}", inputs, {"eps": 1e-5}, control))
    biased = {**inputs, "gate_up_bias": source.normal(192), "down_bias": source.normal(64)}
    plain, tiny = (
        {**inputs, "residual": None},
        {**inputs, "x": inputs["x"] * 1e-3, "residual": None},
    )
    gelu = {"eps": 1e-5, "activation": "gelu_tanh"}
    return [
        *cases,
        Case(op, "gate_up bias", biased, {"eps": 1e-5}, without("gate_up_bias")),
        Case(op, "down bias", biased, {"eps": 1e-5}, without("down_bias")),
        Case(op, "no residual", plain, {"eps": 1e-5}, scaled(plain, "norm")),
        Case(op, "eps", tiny, {"eps": 1e-5}, changed("eps", 0.0)),
        Case(op, "gelu_tanh", inputs, gelu, changed("activation", "silu")),
    ]


BLOCKS: dict[str, Callable[[str], list[Case]]] = {
    "attention_block": attention_block,
    "mlp_block": mlp_block,
}
