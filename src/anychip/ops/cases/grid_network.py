"""Sized cases of products and of a network's operators outside attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anychip.ops.cases.draw import Draw
from anychip.ops.cases.grid_primitives import FLAT, LARGE, shape_of
from anychip.ops.cases.grid_sizes import (
    FLAG,
    ROWS,
    VOCABULARY,
    WIDTHS,
    Arrays,
    Dimension,
    Family,
    Sizes,
    bias_left_out,
    grown,
    require,
)
from anychip.ops.cases.network import norm_inputs, qk_inputs, rotary_inputs

T = Dimension("T", 3, ROWS)
_K = Dimension("K", 64, WIDTHS)
"""64: weights of any format have blocks of 32 along it."""
_HEADS = (Dimension("H", 4, (1, 2, 3, 9, 33)), Dimension("G", 2, (1, 2, 3, 9)))
_HEAD_DIMS = (2, 8, 16, 20, 64, 80, 128, 256)


def _product(op: str, source: Draw, sizes: Sizes) -> Arrays:
    lead = (sizes["G"],) if op == "batched_matmul" else ()
    m, k, n = sizes["M"], sizes["K"], sizes["N"]
    b = (n, k) if sizes["turned"] else (k, n)
    return {"a": source.normal(*lead, m, k), "b": source.normal(*lead, *b)}


def _product_attrs(sizes: Sizes) -> dict[str, Any]:
    return {"transpose_b": bool(sizes["turned"])}


def _norm(op: str, source: Draw, sizes: Sizes) -> Arrays:
    names = ("x", "residual") if op == "add_rms_norm" else ("x",)
    return norm_inputs(source, sizes["T"], sizes["K"], names)


def _eps(sizes: Sizes) -> dict[str, Any]:
    return {"eps": 1e-5}


def _embedding(op: str, source: Draw, sizes: Sizes) -> Arrays:
    tokens = source.integers(sizes["T"], high=sizes["V"])
    tokens[:1] = sizes["V"] - 1
    return {"tokens": tokens, "table": source.normal(sizes["V"], sizes["K"])}


def _rotary(op: str, source: Draw, sizes: Sizes) -> Arrays:
    turning = sizes["D"] - sizes["still"]
    require(turning >= 2, f"{op}: still = {sizes['still']} leaves nothing of D = {sizes['D']}")
    require(turning % 2 == 0, f"{op}: D - still = {turning} must be even")
    return rotary_inputs(source, (sizes["T"], sizes["H"], sizes["G"], sizes["D"]), turning)


def _rotary_attrs(sizes: Sizes) -> dict[str, Any]:
    return {"rotary_dim": sizes["D"] - sizes["still"], "neox": bool(sizes["neox"])}


def _qk(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return qk_inputs(source, (sizes["T"], sizes["H"], sizes["G"], sizes["D"]))


def _linear(op: str, source: Draw, sizes: Sizes) -> Arrays:
    rows, k, n = sizes["T"], sizes["K"], sizes["N"]
    x, weight = source.normal(rows, k), source.normal(n, k, scale=k**-0.5)
    return {"x": x, "weight": weight, "bias": source.normal(n) if sizes["bias"] else None}


def _lm_head(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {
        "x": source.normal(sizes["T"], sizes["K"]),
        "weight": source.normal(sizes["V"], sizes["K"]),
    }


def _activation(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {"x": source.normal(sizes["T"], 2 * sizes["I"], scale=2)}


def _elements(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {"x": source.normal(*shape_of(sizes), scale=5)}


_SQUARE = (Dimension("M", 3, ROWS), _K, Dimension("N", 33, WIDTHS), Dimension("turned", 0, FLAG))
_PRODUCTS: tuple[Sizes, ...] = (
    {"M": 1025, "K": 96, "N": 65},
    {"M": 1, "K": 1025, "N": 1025, "turned": 1},
    {"M": 65, "K": 1, "N": 1},
    {"M": 129, "K": 576, "N": 129, "turned": 1},
)
_LINEARS: tuple[Sizes, ...] = (
    {"T": 1025, "K": 96, "N": 65, "bias": 1},
    {"T": 1, "K": 1025, "N": 1025},
    {"T": 65, "K": 1, "N": 1},
    {"T": 129, "K": 576, "N": 192, "bias": 1},
)
_NORM = Family(
    (T, _K), _norm, grown("weight", over="x"), _eps, ({"T": 1025, "K": 576}, {"T": 1, "K": 1})
)
_ACTIVATION = Family(
    (T, Dimension("I", 33, WIDTHS)),
    _activation,
    grown("x"),
    crossed=({"T": 1025, "I": 576}, {"T": 1, "I": 1}),
)

CLAMP = {"alpha": 1.702, "limit": 7.0}
"""GPT-OSS's."""

NETWORK: dict[str, Family] = {
    "matmul": Family(_SQUARE, _product, grown("a"), _product_attrs, _PRODUCTS),
    "batched_matmul": Family(
        (Dimension("G", 3, (1, 2, 3, 9, 33)), *_SQUARE),
        _product,
        grown("a"),
        _product_attrs,
        _PRODUCTS,
    ),
    "embedding": Family(
        (T, Dimension("V", 33, (*VOCABULARY, 1025)), _K),
        _embedding,
        grown("table", over="tokens"),
        lambda sizes: {"dtype": "float32"},
        ({"T": 1025, "V": 1025, "K": 96}, {"T": 1, "V": 1, "K": 1}),
    ),
    "rms_norm": _NORM,
    "add_rms_norm": _NORM,
    "qk_norm": Family(
        (T, *_HEADS, Dimension("D", 64, WIDTHS)),
        _qk,
        grown("k_weight", over="k"),
        _eps,
        ({"T": 1025, "H": 9, "G": 3}, {"T": 1, "H": 1, "G": 1, "D": 1}),
    ),
    "rotary_embedding": Family(
        (
            T,
            *_HEADS,
            Dimension("D", 64, _HEAD_DIMS),
            Dimension("still", 0, (0, 2, 32, 62)),
            Dimension("neox", 1, FLAG),
        ),
        _rotary,
        grown("cos_sin", over="q"),
        _rotary_attrs,
        (
            {"T": 1025, "H": 9, "G": 3},
            {"D": 80, "still": 48, "neox": 0},
            {"D": 20, "still": 12},
            {"T": 1, "H": 1, "G": 1, "D": 2},
        ),
    ),
    "linear": Family(
        (T, _K, Dimension("N", 48, WIDTHS), Dimension("bias", 0, FLAG)),
        _linear,
        bias_left_out,
        crossed=_LINEARS,
    ),
    "lm_head": Family(
        (T, _K, Dimension("V", 130, VOCABULARY)),
        _lm_head,
        grown("x"),
        crossed=(
            {"T": 1025, "V": 257},
            {"T": 1, "K": 576, "V": 32000},
            {"T": 1, "K": 1, "V": 1},
            {"T": 1, "K": 32, "V": 248_320},  # where a vendor's product of one row was wrong
        ),
    ),
    "silu_and_mul": _ACTIVATION,
    "gelu_tanh_and_mul": _ACTIVATION,
    "swiglu_clamp_and_mul": replace(_ACTIVATION, attrs=lambda sizes: CLAMP),
    "softcap": Family(
        (T, Dimension("N", 33, WIDTHS), FLAT),
        _elements,
        grown("x"),
        lambda sizes: {"cap": 5.0},
        LARGE,
    ),
}
