"""Cases of a network's operators outside attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case
from anychip.ops.cases.draw import Draw, apart, changed, draw, scaled, without
from anychip.ops.oracle.arrays import Array

ROWS_AND_WIDTHS = ((0, 8), (1, 1), (1, 31), (3, 33), (5, 64), (2, 65), (7, 576), (1, 1023))


def table_of_rotations(positions: int, rotary_dim: int) -> Array:
    """[positions, rotary_dim] of cosines, then sines, float32."""
    half = rotary_dim // 2
    angles = np.outer(np.arange(positions), 10000.0 ** (-np.arange(half) / half))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def embedding(op: str) -> list[Case]:
    """Repeated tokens, the last row, a scale."""
    source = draw(op)
    cases = []
    for tokens, vocabulary, width, scale in (
        (0, 5, 8, 1.0),
        (1, 1, 1, 1.0),
        (9, 33, 65, 1.0),
        (9, 33, 64, 5.5),
    ):
        inputs = {
            "tokens": source.integers(tokens, high=vocabulary),
            "table": source.normal(vocabulary, width),
        }
        inputs["tokens"][:1] = vocabulary - 1
        control = changed("scale", 1.0) if scale != 1 else scaled(inputs, "table")
        attrs = {"dtype": "float32", "scale": scale}
        cases.append(
            Case(
                op,
                f"{tokens} of {vocabulary}x{width} scale {scale}",
                inputs,
                attrs,
                control if tokens else None,
            )
        )
    return cases


def norm_inputs(source: Draw, rows: int, width: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Activations `names` [rows, width] and the weight of a norm."""
    given: dict[str, Any] = {name: source.normal(rows, width) for name in names}
    return {**given, "weight": source.normal(width, mean=1, scale=0.3)}


def rms_norm(op: str) -> list[Case]:
    """Widths around vector sizes, rows apart, an eps that matters, large values."""
    source = draw(op)
    cases = []
    for rows, width in ROWS_AND_WIDTHS:
        inputs = norm_inputs(source, rows, width, ("x",))
        cases.append(
            Case(
                op,
                f"{rows}x{width}",
                inputs,
                {"eps": 1e-5},
                scaled(inputs, "weight") if rows else None,
            )
        )
    inputs = {**inputs, "x": apart(source.normal(3, 1023))}
    cases.append(Case(op, "rows apart", inputs, {"eps": 1e-5}, scaled(inputs, "weight")))
    small = {**inputs, "x": source.normal(3, 1023, scale=1e-3)}
    cases.append(Case(op, "small values", small, {"eps": 1e-5}, changed("eps", 0.0)))
    large = {**inputs, "x": source.normal(3, 1023, scale=200)}
    cases.append(Case(op, "large values", large, {"eps": 1e-5}, scaled(large, "weight")))
    return cases


def add_rms_norm(op: str) -> list[Case]:
    """Widths around vector sizes, the residual, an eps that matters."""
    source = draw(op)
    cases = []
    for rows, width in ROWS_AND_WIDTHS:
        inputs = norm_inputs(source, rows, width, ("x", "residual"))
        cases.append(
            Case(
                op,
                f"{rows}x{width}",
                inputs,
                {"eps": 1e-5},
                scaled(inputs, "residual") if rows else None,
            )
        )
    small = {n: v * np.float32(1e-3) if n != "weight" else v for n, v in inputs.items()}
    cases.append(Case(op, "small values", small, {"eps": 1e-5}, changed("eps", 0.0)))
    return cases


def qk_inputs(source: Draw, sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    """Queries, keys and a weight for each. sizes: tokens, query heads, KV heads, head dim."""
    tokens, heads, kv_heads, dim = sizes
    return {
        "q": source.normal(tokens, heads, dim),
        "k": source.normal(tokens, kv_heads, dim),
        "q_weight": source.normal(dim, mean=1, scale=0.3),
        "k_weight": source.normal(dim, mean=-1, scale=0.3),
    }


def qk_norm(op: str) -> list[Case]:
    """Head dims around vector sizes, rows apart as they come out of one qkv product."""
    source = draw(op)
    cases = []
    for sizes in ((0, 2, 1, 8), (1, 1, 1, 1), (3, 4, 2, 33), (5, 9, 3, 64), (2, 4, 4, 256)):
        inputs = qk_inputs(source, sizes)
        control = scaled(inputs, "k_weight") if sizes[0] else None
        cases.append(Case(op, f"{sizes}", inputs, {"eps": 1e-6}, control))
    inputs = qk_inputs(source, (5, 4, 2, 16))
    apart_ones = {**inputs, "q": apart(inputs["q"], 64), "k": apart(inputs["k"], 96)}
    cases.append(Case(op, "rows apart", apart_ones, {"eps": 1e-6}, scaled(inputs, "q_weight")))
    small = {n: v * np.float32(1e-3) if n in "qk" else v for n, v in inputs.items()}
    cases.append(Case(op, "small values", small, {"eps": 1e-6}, changed("eps", 0.0)))
    return cases


def rotary_inputs(
    source: Draw, sizes: tuple[int, int, int, int], rotary_dim: int
) -> dict[str, Any]:
    """Queries, keys, positions. sizes: tokens, query heads, KV heads, head dim."""
    tokens, heads, kv_heads, dim = sizes
    return {
        "q": source.normal(tokens, heads, dim),
        "k": source.normal(tokens, kv_heads, dim),
        "positions": source.integers(tokens, low=1, high=50),
        "cos_sin": table_of_rotations(50, rotary_dim),
    }


def rotary_embedding(op: str) -> list[Case]:
    """Both pairings, partial rotation, rows apart as they come out of one qkv product."""
    source = draw(op)
    cases = []
    for sizes, rotary_dim, neox in (
        ((0, 2, 1, 8), 8, True),
        ((1, 1, 1, 2), 2, True),
        ((5, 9, 3, 64), 64, True),
        ((3, 4, 4, 10), 10, False),
        ((7, 4, 2, 80), 32, True),
        ((7, 4, 1, 20), 8, False),
    ):
        inputs = rotary_inputs(source, sizes, rotary_dim)
        attrs = {"rotary_dim": rotary_dim, "neox": neox}
        control = changed("neox", not neox) if rotary_dim > 2 else scaled(inputs, "cos_sin")
        cases.append(
            Case(
                op,
                f"{sizes} rotary {rotary_dim} neox {neox}",
                inputs,
                attrs,
                control if sizes[0] else None,
            )
        )
    inputs = rotary_inputs(source, (5, 4, 2, 16), 16)
    inputs |= {"q": apart(inputs["q"], 64), "k": apart(inputs["k"], 96)}
    cases.append(
        Case(op, "rows apart", inputs, {"rotary_dim": 16, "neox": True}, changed("rotary_dim", 8))
    )
    return cases


def linear(op: str) -> list[Case]:
    """Sizes around tiles and blocks of 32, with and without a bias, rows apart."""
    source = draw(op)
    cases = []
    for rows, k, n in (
        (0, 32, 8),
        (1, 1, 1),
        (1, 64, 48),
        (3, 33, 17),
        (16, 96, 64),
        (33, 65, 129),
        (5, 576, 192),
    ):
        inputs = {
            "x": source.normal(rows, k),
            "weight": source.normal(n, k, scale=k**-0.5),
            "bias": None,
        }
        cases.append(
            Case(op, f"{rows}x{k}x{n}", inputs, {}, scaled(inputs, "weight") if rows else None)
        )
        biased = {**inputs, "bias": source.normal(n)}
        cases.append(
            Case(op, f"{rows}x{k}x{n} bias", biased, {}, without("bias") if rows else None)
        )
    inputs = {"x": apart(source.normal(4, 64), 32), "weight": source.normal(8, 64), "bias": None}
    cases.append(Case(op, "rows apart", inputs, {}, scaled(inputs, "x")))
    return cases


def lm_head(op: str) -> list[Case]:
    """A scale, a cap, both."""
    source = draw(op)
    cases = []
    for rows, k, n in ((0, 32, 8), (1, 1, 1), (1, 64, 1000), (3, 33, 130), (9, 96, 257)):
        inputs = {"x": source.normal(rows, k), "weight": source.normal(n, k)}
        cases.append(Case(op, f"{rows}x{k}x{n}", inputs, {}, scaled(inputs, "x") if rows else None))
    cases.append(Case(op, "scale", inputs, {"scale": 0.25}, changed("scale", 1.0)))
    cases.append(Case(op, "softcap", inputs, {"softcap": 5.0}, changed("softcap", 0.0)))
    cases.append(
        Case(op, "both", inputs, {"scale": 2.0, "softcap": 20.0}, changed("softcap", 30.0))
    )
    return cases


def activation(op: str) -> list[Case]:
    """Half sizes around vector widths, saturated gates."""
    source = draw(op)
    cases = []
    for rows, size in ROWS_AND_WIDTHS:
        inputs = {"x": source.normal(rows, 2 * size, scale=2)}
        cases.append(Case(op, f"{rows}x{size}", inputs, {}, scaled(inputs, "x") if rows else None))
    inputs = {"x": np.array([[-100, -1, 0, 100, 1, 2, 3, 4]], dtype=np.float32)}
    cases.append(Case(op, "saturated", inputs, {}, scaled(inputs, "x")))
    return cases


def clamped(op: str) -> list[Case]:
    """Half sizes around vector widths, values beyond both limits, another slope."""
    source, base = draw(op), {"alpha": 1.702, "limit": 7.0}
    cases = []
    for rows, size in ROWS_AND_WIDTHS:
        inputs = {"x": source.normal(rows, 2 * size, scale=2)}
        cases.append(
            Case(op, f"{rows}x{size}", inputs, base, scaled(inputs, "x") if rows else None)
        )
    inputs = {"x": np.array([[-100, -1, 0, 100, 9, -9, 3, -100]], dtype=np.float32)}
    cases.append(Case(op, "saturated", inputs, base, changed("limit", 8.0)))
    inputs = {"x": source.normal(3, 66)}
    cases.append(Case(op, "alpha", inputs, base, changed("alpha", 1.0)))
    return cases


def softcap(op: str) -> list[Case]:
    """Values under and far over the cap."""
    source = draw(op)
    cases = []
    for shape, cap, spread in (
        ((0, 5), 1.0, 1.0),
        ((1,), 0.5, 5.0),
        ((3, 33), 30.0, 20.0),
        ((2, 3, 65), 5.0, 100.0),
    ):
        inputs = {"x": source.normal(*shape, scale=spread)}
        control = changed("cap", cap * 2) if inputs["x"].size else None
        cases.append(Case(op, f"{shape} cap {cap}", inputs, {"cap": cap}, control))
    return cases


NETWORK: dict[str, Callable[[str], list[Case]]] = {
    "embedding": embedding,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "qk_norm": qk_norm,
    "rotary_embedding": rotary_embedding,
    "linear": linear,
    "lm_head": lm_head,
    "silu_and_mul": activation,
    "gelu_tanh_and_mul": activation,
    "swiglu_clamp_and_mul": clamped,
    "softcap": softcap,
}
