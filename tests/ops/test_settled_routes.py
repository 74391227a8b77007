"""Choices of experts: what rounding explains is right, anything else is not."""

from __future__ import annotations

import numpy as np
import pytest

from anychip.contract.dtype import DType
from anychip.ops.check import compare
from anychip.ops.oracle import evaluate

TINY = 2.0**-24
"""A difference that a float32 computation may lose."""
GROUPED = {"k": 2, "scoring": "softmax", "groups": 3, "groups_kept": 1}


def verdict(logits, ids, weights=None, **attrs):
    """The verdict on these ids, with their own right weights or the given ones."""
    logits = np.log(np.array([logits], np.float64)).astype(np.float32)
    attrs = {"k": len(ids), "scoring": "softmax", **attrs}
    inputs, ids = {"logits": logits, "bias": None}, np.array([ids], np.int32)
    if weights is None:
        odds = np.exp(logits.astype(np.float64))
        weights = np.take_along_axis(odds / odds.sum(), ids, axis=1)
    found = {"ids": ids, "weights": np.array(weights, np.float32)}
    return compare("route_experts", inputs, attrs, found, DType.FLOAT32)


NEAR = [1.0, 3.0, 3.0 * (1 + 4 * TINY), 2.0]


@pytest.mark.parametrize("ids", [[2, 1], [1, 2], [2, 1, 3]])
def test_neighbours_may_change_places(ids):
    assert verdict(NEAR, ids).ok


@pytest.mark.parametrize("ids", [[3, 2], [2, 3], [1, 3, 2], [2, 2], [2, -1], [2, 4]])
def test_other_choices_are_wrong(ids):
    weights = [[0.3] * len(ids)]
    assert not verdict(NEAR, ids, weights).ok


def test_equal_ones_stand_in_order():
    assert verdict([1.0, 3.0, 3.0, 2.0], [1, 2]).ok
    assert not verdict([1.0, 3.0, 3.0, 2.0], [2, 1]).ok


def test_weights_are_those_of_the_ids_that_were_found():
    right = np.array([[3.0, 3.0]]) / sum(NEAR)
    assert verdict(NEAR, [1, 2], right).ok
    assert not verdict(NEAR, [1, 2], right * 1.01).ok


@pytest.mark.parametrize(
    ("ids", "right"),
    [([5, 4], True), ([2, 3], True), ([2, 5], False), ([1, 0], False)],
)
def test_nearly_equal_groups_may_change_places_whole(ids, right):
    odds = [1.0, 2.0, 5.0, 3.0, 4.0, 5.0 * (1 + 4 * TINY)]
    logits = np.log(np.array(odds))[None].astype(np.float32)
    expected = evaluate("route_experts", {"logits": logits, "bias": None}, GROUPED).outputs[1]
    assert expected.tolist() in ([[5, 4]], [[2, 3]])
    assert verdict(odds, ids, **GROUPED).ok == right
