"""The oracle of mixtures of experts, and which choices of experts rounding explains."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from anychip.ops.oracle.arrays import Array, Attrs, Inputs, Oracle, Result, wide
from anychip.ops.oracle.network import NETWORK
from anychip.ops.oracle.primitives import descending, sigmoid


def _softmax(x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        exponents = np.exp(x - x.max(axis=-1, keepdims=True))
        y: Array = exponents / exponents.sum(axis=-1, keepdims=True)
    return y


def _scores(logits: Array, attrs: Attrs) -> Array:
    """[T, E] that weights are taken from; for softmax_topk the logits."""
    if attrs["scoring"] == "sigmoid":
        return sigmoid(logits)
    return _softmax(logits) if attrs["scoring"] == "softmax" else logits


def _choices(scores: Array, bias: Array | None) -> Array:
    """[T, E] that experts are chosen by."""
    choices = scores if bias is None else scores + wide(bias)
    numbers: Array = np.where(np.isnan(choices), -np.inf, choices)
    return numbers


def _group_scores(choices: Array, attrs: Attrs) -> Array:
    """[T, groups]."""
    count = attrs["groups"]
    members = choices.reshape(len(choices), count, choices.shape[1] // count)
    counted = 2 if attrs["group_score"] == "top2" else 1
    best: Array = -np.sort(-members, axis=-1)[..., :counted].sum(axis=-1)
    return best


def _limited(choices: Array, kept: Array) -> Array:
    """Choices with -inf for the experts of groups that are not kept [T, groups]."""
    left: Array = np.where(kept.repeat(choices.shape[1] // kept.shape[1], axis=1), choices, -np.inf)
    return left


def _best(values: Array, count: int) -> Array:
    """Whether each value is among the `count` largest of its row; the lower index wins ties."""
    rank = descending(values).argsort(axis=-1)
    best: Array = rank < count
    return best


def _weights(scores: Array, ids: Array, attrs: Attrs) -> Array:
    own = np.take_along_axis(scores, ids, axis=1)
    if attrs["scoring"] == "softmax_topk":
        own = _softmax(own)
    if attrs["renormalize"]:
        own = own / (own.sum(axis=-1, keepdims=True) + 1e-20)
    weights: Array = own * attrs["scale"]
    return weights


def _route_experts(inputs: Inputs, attrs: Attrs) -> Result:
    scores = _scores(wide(inputs["logits"]), attrs)
    choices = _choices(scores, inputs.get("bias"))
    if attrs["groups"] > 1:
        kept = _best(_group_scores(choices, attrs), attrs["groups_kept"])
        choices = _limited(choices, kept)
    ids = descending(choices)[:, : attrs["k"]]
    return Result((_weights(scores, ids, attrs), ids))


def settled_route(inputs: Inputs, attrs: Attrs, found: Array, slack: float) -> Result:
    """What the oracle gives; where rounding may lead to the found ids [T, K], for these.

    slack: choices that lie less than this share of themselves apart may change places.
    """
    expected = _route_experts(inputs, attrs)
    ids = expected.outputs[1].copy()
    if found.shape != ids.shape:
        return expected
    scores = _scores(wide(inputs["logits"]), attrs)
    choices = _choices(scores, inputs.get("bias"))
    for row in np.flatnonzero((found != ids).any(axis=1)):
        reach = slack * np.maximum(np.abs(choices[row]), np.abs(scores[row]))
        if _explained(choices[row], reach, found[row], attrs):
            ids[row] = found[row]
    return Result((_weights(scores, ids, attrs), ids))


def _explained(choices: Array, reach: Array, ids: Array, attrs: Attrs) -> bool:
    """Whether one row's ids follow from choices that are off by no more than their reach."""
    inside = bool(((ids >= 0) & (ids < len(choices))).all())
    if not inside or len(set(ids.tolist())) < len(ids):
        return False
    if attrs["groups"] > 1:
        kept = _kept_with(choices, reach, ids, attrs)
        choices = _limited(choices[None], kept[None])[0]
    if np.isneginf(choices[ids]).any():
        return False
    order = ids.tolist()
    rest = sorted(set(range(len(choices))) - set(order))
    pairs = [*pairwise(order), *((order[-1], other) for other in rest)]
    return all(_before(choices, reach, one, other) for one, other in pairs)


def _before(choices: Array, reach: Array, one: int, other: int) -> bool:
    """Whether `one` may stand before `other`; of equal choices the lower index does."""
    if choices[one] == choices[other]:
        return bool(one < other)
    return bool(choices[one] >= choices[other] - max(reach[one], reach[other]))


def _kept_with(choices: Array, reach: Array, ids: Array, attrs: Attrs) -> Array:
    """Groups [groups] that are kept where those of the ids are preferred, as far as reach goes."""
    scores = _group_scores(choices[None], attrs)[0]
    wider = 2 * reach.reshape(len(scores), -1).max(axis=1)
    used = np.isin(np.arange(len(scores)), ids // (len(choices) // len(scores)))
    moved = scores + np.where(used, wider, -wider)
    kept: Array = _best(moved[None], attrs["groups_kept"])[0]
    return kept


def _grouped_linear(inputs: Inputs, attrs: Attrs) -> Result:
    x, weight, bias = wide(inputs["x"]), inputs["weight"], inputs.get("bias")
    rows = weight.shape[0] // attrs["experts_count"]
    y = np.zeros((len(x), rows))
    for expert in np.unique(inputs["experts"]):
        mine = inputs["experts"] == expert
        y[mine] = x[mine] @ wide(weight[expert * rows : (expert + 1) * rows]).T
        if bias is not None:
            y[mine] += wide(bias[expert])
    return Result((y,))


def activate(x: Array, attrs: Attrs) -> Array:
    """The gate of an expert: x [N, 2 * I] -> [N, I]."""
    y: Array = NETWORK[f"{attrs['activation']}_and_mul"]({"x": x}, attrs).outputs[0]
    return y


def _expert_mlp(inputs: Inputs, attrs: Attrs) -> Result:
    x, ids = wide(inputs["x"]), inputs["ids"]
    count = {"experts_count": attrs["experts_count"]}
    y = np.zeros_like(x)
    for p in range(ids.shape[1]):
        up = {"weight": inputs["gate_up"], "bias": inputs.get("gate_up_bias")}
        inner = _grouped_linear({"x": x, "experts": ids[:, p], **up}, count).outputs[0]
        down = {"weight": inputs["down"], "bias": inputs.get("down_bias")}
        given = {"x": activate(inner, attrs), "experts": ids[:, p], **down}
        y += _grouped_linear(given, count).outputs[0] * wide(inputs["weights"])[:, p : p + 1]
    return Result((y,))


EXPERTS: dict[str, Oracle] = {
    "route_experts": _route_experts,
    "grouped_linear": _grouped_linear,
    "expert_mlp": _expert_mlp,
}
