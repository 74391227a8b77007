"""A wrong result names the mistake that made it; a right one, or one gone wrong by chance, none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases.attention import Heads, Ragged, attention_inputs
from anychip.ops.cases.draw import draw
from anychip.ops.check import outcome
from anychip.ops.oracle.arrays import CacheArrays
from anychip.ops.suspects import explained, suspects

BF16, F16 = (NUMPY_DTYPES[d] for d in (DType.BFLOAT16, DType.FLOAT16))
SOURCE = draw("suspects")
X = SOURCE.normal(12, 64)
BIAS = SOURCE.normal(40)
WEIGHT = SOURCE.normal(40, 64, scale=0.1).astype(BF16)
HEAD = 16
ROOT = HEAD**-0.5


def linear(x: Any = X, weight: Any = WEIGHT, bias: Any = BIAS) -> np.ndarray:
    """Not the oracle's: float32, as a chip computes."""
    return x.astype(np.float32) @ weight.astype(np.float32).T + bias


def said(found: np.ndarray, weight: Any = WEIGHT) -> str:
    inputs = {"x": X, "weight": weight.astype(np.float32), "bias": BIAS}
    return explained("linear", inputs, {}, {"y": found})


def integer_product(levels: int) -> np.ndarray:
    """Both sides rounded to whole numbers of at most `levels`, multiplied as integers."""
    top = {"x": np.abs(X).max(), "w": np.abs(WEIGHT.astype(np.float32)).max()}
    x = np.rint(X / top["x"] * levels).astype(np.int64)
    w = np.rint(WEIGHT.astype(np.float32) / top["w"] * levels).astype(np.int64)
    return (x @ w.T * (top["x"] * top["w"] / levels**2) + BIAS).astype(np.float32)


def test_right_results_need_no_explanation() -> None:
    assert said(linear()) == ""
    assert said(linear().astype(BF16)) == ""
    same = {"y": np.full((3, 4), 2.0, np.float32)}
    attrs = {"shape": (3, 4), "value": 2.0, "dtype": "float32"}
    assert explained("fill", {}, attrs, same) == ""


@pytest.mark.parametrize("scale", [1e-3, 0.01, 0.3, 10.0])
def test_what_went_wrong_by_chance_is_not_explained(scale) -> None:
    assert said(linear() + draw("noise").normal(12, 40, scale=scale)) == ""


def test_one_wrong_row_is_not_explained() -> None:
    found = linear()
    found[3] = -found[3]
    assert said(found) == ""
    found[3] = np.nan
    assert said(found) == ""


@pytest.mark.parametrize(
    ("held", "read", "text"),
    [
        (BF16, F16, "'weight' is bfloat16, its bytes are read as float16"),
        (F16, BF16, "'weight' is float16, its bytes are read as bfloat16"),
    ],
)
def test_bytes_read_in_another_dtype(held, read, text) -> None:
    weight = WEIGHT.astype(np.float32).astype(held)
    assert said(linear(weight=weight.view(np.uint16).view(read)), weight) == text


def test_a_weight_that_never_lay_in_a_type_was_not_read_from_it() -> None:
    """A weight of float32: its bytes are no other type's."""
    weight = SOURCE.normal(40, 64)
    texts = [s.text for s in suspects("linear", {"x": X, "weight": weight, "bias": None}, {})]
    assert texts and not any("bytes are read" in text for text in texts)


@pytest.mark.parametrize(
    ("factor", "text"),
    [(127.0, "max is taken for scale"), (1 / 127.0, "scale is taken for max")],
)
def test_max_and_scale_taken_for_each_other(factor, text) -> None:
    found = said(linear(weight=WEIGHT.astype(np.float32) * np.float32(factor)))
    assert found.endswith(text) and f"{factor:.3g} times" in found


def test_product_in_integers() -> None:
    assert said(integer_product(32767)) == ("the product is computed in int16, not in a float type")
    assert said(integer_product(127)) == "the product is computed in int8, not in a float type"
    assert said(integer_product(2047)) == ""


@pytest.mark.parametrize("op", ["lm_head", "matmul"])
def test_other_products(op) -> None:
    names = ("a", "b") if op == "matmul" else ("x", "weight")
    attrs = {"transpose_b": True, "dtype": ""} if op == "matmul" else {"scale": 1.0, "softcap": 0.0}
    inputs = dict(zip(names, (X, WEIGHT.astype(np.float32)), strict=True))
    (name,) = outcome(op, inputs, attrs)
    found = {name: integer_product(127) - BIAS}
    assert "computed in int8" in explained(op, inputs, attrs, found)


def test_output_that_was_never_written_or_depends_on_nothing() -> None:
    assert said(np.full((12, 40), np.nan, np.float32)).startswith("every number is NaN")
    assert said(np.full((12, 40), -3.5, BF16)).startswith("every number is the same (-3.5)")
    assert said(np.zeros((12, 40), np.float32)).startswith("every number is the same (0)")


def test_embedding_read_in_another_dtype() -> None:
    tokens = SOURCE.integers(9, high=40)
    attrs = {"dtype": "float32", "scale": 1.0}
    inputs = {"tokens": tokens, "table": WEIGHT.astype(np.float32)}
    found = {"y": WEIGHT.view(np.uint16).view(F16)[tokens].astype(np.float32)}
    assert explained("embedding", inputs, attrs, found) == (
        "'table' is bfloat16, its bytes are read as float16"
    )


RAGGED = attention_inputs(SOURCE, Ragged((9, 1, 1), (30, 21, 40), 4, 1), Heads(4, 2, HEAD))
PLAIN = {"scale": ROOT, "causal": True, "window": 0, "softcap": 0.0}


def attended(asked: dict[str, Any], done: dict[str, Any]) -> str:
    """What is said of a result for other attributes than those asked for."""
    y = outcome("paged_attention", RAGGED, {**asked, **done})["y"].astype(np.float32)
    return explained("paged_attention", RAGGED, asked, {"y": y})


@pytest.mark.parametrize(
    ("asked", "done", "text"),
    [
        ({}, {"scale": ROOT * ROOT}, "1/sqrt(head dim) is applied twice"),
        ({}, {"scale": 1.0}, "1/sqrt(head dim) is left out"),
        ({"scale": 0.7}, {"scale": ROOT}, "scale is replaced by 1/sqrt(head dim)"),
        ({}, {"causal": False}, "the causal mask is ignored"),
        ({"window": 6}, {"window": 0}, "the window is ignored"),
        ({"window": 6}, {"window": 7}, "the window is off by one: 7 positions"),
        ({"window": 6}, {"window": 5}, "the window is off by one: 5 positions"),
        ({"softcap": 0.5}, {"softcap": 0.0}, "the softcap is ignored"),
        ({"window": 6, "softcap": 0.5}, {"softcap": 0.0}, "the softcap is ignored"),
        ({"window": 6, "softcap": 0.5}, {"window": 0}, "the window is ignored"),
    ],
)
def test_options_of_attention(asked, done, text) -> None:
    assert attended({**PLAIN, **asked}, done) == text


def test_attention_that_is_right_or_wrong_otherwise() -> None:
    asked = {**PLAIN, "window": 6, "softcap": 0.5}
    assert attended(asked, {}) == ""
    assert attended(asked, {"window": 3}) == ""
    assert attended(asked, {"scale": 3 * ROOT}) == ""
    y = outcome("paged_attention", RAGGED, asked)["y"].astype(np.float32)
    flipped = explained("paged_attention", RAGGED, asked, {"y": -y})
    assert flipped == ""


def test_every_suspect_is_told_from_the_others() -> None:
    """Each one's own result is explained by it alone, or two texts are one mistake."""
    asked = {**PLAIN, "window": 6, "softcap": 0.5, "scale": 0.7}
    found = list(suspects("paged_attention", RAGGED, asked))
    assert len({s.text for s in found}) == len(found) == 8
    for suspect in found:
        assert attended(asked, dict(suspect.attrs)) == suspect.text
    inputs = {"x": X, "weight": WEIGHT.astype(np.float32), "bias": BIAS}
    for suspect in suspects("linear", inputs, {}):
        y = outcome("linear", {**inputs, **suspect.inputs}, {})["y"].astype(np.float32)
        assert said(y) == suspect.text


def test_cache_that_was_not_written() -> None:
    half = SOURCE.normal(3, 2, 8)
    zeros = np.zeros((4, 4, 2, 8), np.float32)
    cache, slots = CacheArrays(zeros, zeros), np.array([5, 2, 9], np.int32)
    inputs = {"cache": cache, "k": half, "v": half, "slots": slots}
    assert explained("kv_write", inputs, {}, {"cache": cache}).startswith("nothing was written")
    right = outcome("kv_write", inputs, {})
    assert explained("kv_write", inputs, {}, right) == ""
    other = outcome("kv_write", {**inputs, "slots": slots + 1}, {})
    assert explained("kv_write", inputs, {}, other) == ""
    skipped = {**inputs, "slots": np.full(3, -1, np.int32)}
    assert explained("kv_write", skipped, {}, {"cache": cache}) == ""
