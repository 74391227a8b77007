"""Recipes of mixtures of experts. Each expert multiplies every row, and the rows that chose it
keep its product: right at any size, and as many times slower as there are experts."""

from __future__ import annotations

from math import inf

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Ops, Value, Weight
from anychip.ops.compositions.elements import F32, as_float, cast, number

I32 = DType.INT32
LEAST = 1e-20
"""What a sum of weights is given before weights are divided by it."""


def route_experts(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    logits: Value,
    bias: Value | None,
    k: int,
    scoring: str,
    renormalize: bool,
    groups: int,
    groups_kept: int,
    group_score: str,
    scale: float,
) -> tuple[Value, Value]:
    """Scores, the k largest choices, and the scores gathered there."""
    scores = _scores(ops, logits, scoring)
    choices = scores if bias is None else ops.add(a=scores, b=bias)
    is_number = ops.eq(a=choices, b=choices)
    choices = ops.where(condition=is_number, a=choices, b=number(ops, -inf))
    if groups > 1:
        choices = _limited(ops, choices, (groups, groups_kept), group_score)
    _, ids = ops.topk(x=choices, k=k)
    weights = _at(ops, scores, ids)
    if scoring == "softmax_topk":
        weights = ops.softmax(logits=weights)
    if renormalize:
        total = ops.add(a=ops.reduce_sum(x=weights), b=number(ops, LEAST))
        weights = ops.div(a=weights, b=total)
    if scale != 1.0:
        weights = ops.mul(a=weights, b=number(ops, scale))
    return weights, ids


def _scores(ops: Ops, logits: Value, scoring: str) -> Value:
    """[T, E] that weights are taken from; for softmax_topk the logits."""
    if scoring == "softmax":
        softmax: Value = ops.softmax(logits=logits)
        return softmax
    y: Value = ops.sigmoid(x=logits) if scoring == "sigmoid" else logits
    return y


def _limited(ops: Ops, choices: Value, groups: tuple[int, int], group_score: str) -> Value:
    """Choices with -inf outside of the best groups. groups: how many there are, and are kept."""
    (tokens, experts), (count, kept) = choices.shape, groups
    members = choices.reshape(tokens, count, experts // count)
    if group_score == "top2":
        two, _ = ops.topk(x=members, k=2)
        best = ops.reduce_sum(x=two)
    else:
        best = ops.reduce_max(x=members)
    _, chosen = ops.topk(x=best.reshape(tokens, count), k=kept)
    every = ops.arange(length=count, dtype=I32.value).reshape(1, count, 1)
    among = as_float(ops, ops.eq(a=every, b=chosen.reshape(tokens, 1, kept)))
    stays = ops.lt(a=number(ops, 0), b=ops.reduce_max(x=among))
    left: Value = ops.where(condition=stays, a=members, b=number(ops, -inf))
    return left.reshape(tokens, experts)


def _at(ops: Ops, scores: Value, ids: Value) -> Value:
    """scores [T, E] at ids [T, K]."""
    (tokens, experts), k = scores.shape, ids.shape[1]
    if tokens == 0:
        none: Value = ops.fill(shape=(0, k), value=0.0, dtype=F32.value)
        return none
    first = ops.mul(
        a=ops.arange(length=tokens, dtype=I32.value), b=number(ops, experts, I32)
    ).reshape(tokens, 1)
    flat = scores.reshape(tokens * experts, 1)
    found: Value = ops.gather_rows(table=flat, index=ops.add(a=ids, b=first))
    return found.reshape(tokens, k)


def grouped_linear(
    ops: Ops, *, x: Value, weight: Weight, experts: Value, bias: Value | None, experts_count: int
) -> Value:
    """One product an expert over all rows, selected where the row is its own."""
    dense, own = weight.dense, experts.reshape(experts.shape[0], 1)
    rows, narrow = dense.shape[0] // experts_count, x.dtype
    if x.dtype != dense.dtype:
        x = cast(ops, x, F32)
    y: Value = ops.fill(shape=(x.shape[0], rows), value=0.0, dtype=F32.value)
    for expert in range(experts_count):
        matrix = cast(ops, dense.narrow(0, expert * rows, rows), x.dtype)
        product = ops.matmul(a=x, b=matrix, transpose_b=True, dtype=F32.value)
        if bias is not None:
            product = ops.add(a=product, b=bias.narrow(0, expert, 1))
        mine = ops.eq(a=own, b=number(ops, expert, I32))
        y = ops.where(condition=mine, a=product, b=y)
    return cast(ops, y, narrow)


def expert_mlp(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    x: Value,
    gate_up: Weight,
    gate_up_bias: Value | None,
    down: Weight,
    down_bias: Value | None,
    weights: Value,
    ids: Value,
    experts_count: int,
    activation: str,
    alpha: float,
    limit: float,
) -> Value:
    """Each token's row once for each of its experts, then the weighted sum."""
    (tokens, columns), count = x.shape, ids.shape[1]
    rows = ops.copy(x=x.reshape(tokens, 1, columns).broadcast_to(tokens, count, columns))
    shared = {"experts": ids.reshape(tokens * count), "experts_count": experts_count}
    inner = ops.grouped_linear(
        x=rows.reshape(tokens * count, columns), weight=gate_up, bias=gate_up_bias, **shared
    )
    clamp = {"alpha": alpha, "limit": limit} if activation == "swiglu_clamp" else {}
    inner = getattr(ops, f"{activation}_and_mul")(x=inner, **clamp)
    parts = ops.grouped_linear(x=inner, weight=down, bias=down_bias, **shared)
    parts = parts.reshape(tokens, count, columns).transpose(1, 0, 2)
    shares = weights.reshape(tokens, count, 1).transpose(1, 0, 2)
    total: Value = ops.fill(shape=(tokens, columns), value=0.0, dtype=F32.value)
    for place in range(count):
        part = cast(ops, parts.narrow(0, place, 1), F32)
        part = ops.mul(a=part, b=shares.narrow(0, place, 1)).reshape(tokens, columns)
        total = ops.add(a=total, b=part)
    return cast(ops, total, x.dtype)
