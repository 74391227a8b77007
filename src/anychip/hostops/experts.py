"""Mixtures of experts. A row's result does not depend on which rows chose the same expert."""

from __future__ import annotations

import numpy as np

from anychip.hostops.matrix import rows_by_matrix
from anychip.hostops.network import clamped
from anychip.hostops.primitives import Attrs, Inputs, Kernel, Outputs, gelu_tanh, sigmoid, silu
from anychip.hostops.views import Array, Floats, exact_index


def route_experts(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """In float64: what is nearly equal is told apart as the logits tell it."""
    logits: Array = inputs["logits"].astype(np.float64)
    scores = _scores(logits, attrs["scoring"])
    bias = inputs.get("bias")
    choices = scores if bias is None else scores + bias
    choices = np.where(np.isnan(choices), -np.inf, choices)
    if attrs["groups"] > 1:
        choices = _limited(choices, attrs)
    ids = _best(choices, attrs["k"])
    weights = np.take_along_axis(scores, ids, axis=1)
    if attrs["scoring"] == "softmax_topk":
        weights = _softmax(weights)
    if attrs["renormalize"]:
        weights = weights / (weights.sum(axis=1, keepdims=True) + 1e-20)
    outputs["weights"][...] = weights * attrs["scale"]
    outputs["ids"][...] = ids


def _scores(logits: Array, scoring: str) -> Array:
    if scoring == "softmax":
        return _softmax(logits)
    return sigmoid(logits) if scoring == "sigmoid" else logits


def _softmax(x: Array) -> Array:
    exponents = np.exp(x - x.max(axis=1, keepdims=True))
    y: Array = exponents / exponents.sum(axis=1, keepdims=True)
    return y


def _best(values: Array, count: int) -> Array:
    """Indices of the largest of each row, descending; the lower index wins ties."""
    order: Array = np.argsort(-values, axis=1, kind="stable")[:, :count]
    return order


def _limited(choices: Array, attrs: Attrs) -> Array:
    """-inf for the experts outside of the best groups."""
    tokens, experts = choices.shape
    groups, kept = attrs["groups"], attrs["groups_kept"]
    members = choices.reshape(tokens, groups, experts // groups)
    ordered = -np.sort(-members, axis=2)
    best = ordered[..., : 2 if attrs["group_score"] == "top2" else 1].sum(axis=2)
    stays = np.zeros((tokens, groups), bool)
    np.put_along_axis(stays, _best(best, kept), True, axis=1)
    left: Array = np.where(stays[..., None], members, -np.inf)
    return left.reshape(tokens, experts)


def grouped_linear(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Expert by expert, the rows that are its own."""
    given = inputs["x"], inputs["weight"], inputs.get("bias")
    outputs["y"][...] = _by_experts(given, inputs["experts"], attrs["experts_count"])


def _by_experts(given: tuple[Array, Array, Array | None], experts: Array, count: int) -> Floats:
    """given: rows [N, K], matrices, bias -> [N, R] float32."""
    x, weight, bias = given
    rows = weight.shape[0] // count
    y = np.zeros((len(x), rows), np.float32)
    exact_index(experts, count, "grouped_linear, expert")
    for expert in np.unique(experts):
        mine = np.flatnonzero(experts == expert)
        y[mine] = rows_by_matrix(x[mine], weight[expert * rows : (expert + 1) * rows])
        if bias is not None:
            y[mine] += bias[expert]
    return y


def _gated(x: Floats, attrs: Attrs) -> Floats:
    """The gate of [N, 2 * I] in float32."""
    if attrs["activation"] == "swiglu_clamp":
        return clamped(x, attrs)
    gate, up = np.split(x, 2, axis=1)
    y: Floats = (silu if attrs["activation"] == "silu" else gelu_tanh)(gate) * up
    return y


def expert_mlp(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One expert of each token at a time, added in order; float32 until the end."""
    x, ids, count = inputs["x"], inputs["ids"], attrs["experts_count"]
    total = np.zeros(x.shape, np.float32)
    for place in range(ids.shape[1]):
        experts = ids[:, place]
        first = x, inputs["gate_up"], inputs.get("gate_up_bias")
        inner = _gated(_by_experts(first, experts, count), attrs)
        second = inner, inputs["down"], inputs.get("down_bias")
        part = _by_experts(second, experts, count)
        total += part * inputs["weights"][:, place, None]
    outputs["y"][...] = total


KERNELS: dict[str, Kernel] = {
    "route_experts": route_experts,
    "grouped_linear": grouped_linear,
    "expert_mlp": expert_mlp,
}
