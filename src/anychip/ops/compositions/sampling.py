"""Recipes of choosing tokens. All in float32; thresholds are values, so that ties stay together."""

from __future__ import annotations

from math import inf

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Ops, Value
from anychip.ops.compositions.elements import F32, as_float, number

ABOVE = 2.0
"""Larger than any probability: what a minimum leaves out."""


def _shifted(ops: Ops, x: Value) -> Value:
    y: Value = ops.sub(a=x, b=ops.reduce_max(x=x))
    return y


def softmax(ops: Ops, *, logits: Value) -> Value:
    """exp(x - max) / sum."""
    exponents = ops.exp(x=_shifted(ops, logits))
    y: Value = ops.div(a=exponents, b=ops.reduce_sum(x=exponents))
    return y


def log_softmax(ops: Ops, *, logits: Value) -> Value:
    """x - max - log(sum)."""
    x = _shifted(ops, logits)
    total = ops.reduce_sum(x=ops.exp(x=x))
    y: Value = ops.sub(a=x, b=ops.log(x=total))
    return y


def greedy(ops: Ops, *, logits: Value) -> Value:
    """The largest logit."""
    y: Value = ops.argmax(x=logits)
    return y


def sample(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    logits: Value,
    temperature: Value,
    top_k: Value,
    top_p: Value,
    min_p: Value,
    noise: Value,
) -> Value:
    """Probabilities, three thresholds, and the first running sum beyond the noise."""
    rows = logits.shape[0]
    is_number = ops.eq(a=logits, b=logits)
    numbers = ops.where(condition=is_number, a=logits, b=number(ops, -inf))
    hot = ops.lt(a=number(ops, 0), b=temperature)
    divisor = ops.where(condition=hot, a=temperature, b=number(ops, 1)).reshape(rows, 1)
    p = ops.softmax(logits=ops.div(a=_shifted(ops, numbers), b=divisor))
    ordered, _ = ops.sort(x=p)
    kth = _kth_largest(ops, ordered, top_k.reshape(rows, 1))
    nucleus = _nucleus(ops, ordered, kth, top_p.reshape(rows, 1))
    share = ops.mul(a=ordered.narrow(1, 0, 1), b=min_p.reshape(rows, 1))
    threshold = ops.maximum(a=ops.maximum(a=kth, b=nucleus), b=share)
    stays = ops.le(a=threshold, b=p)
    kept = ops.where(condition=stays, a=p, b=number(ops, 0))
    drawn = _first_beyond(ops, kept, noise.reshape(rows, 1))
    y: Value = ops.where(condition=hot, a=drawn, b=ops.greedy(logits=logits))
    return y


def _kth_largest(ops: Ops, ordered: Value, top_k: Value) -> Value:
    """[R, 1]: the top_k-th value of each descending row; 0 where top_k is below 1."""
    size = ordered.shape[1]
    ranks = ops.arange(length=size, dtype="int32").reshape(1, size)
    inside = ops.lt(a=ranks, b=top_k)
    least = ops.reduce_min(x=ops.where(condition=inside, a=ordered, b=number(ops, ABOVE)))
    asked = ops.lt(a=number(ops, 0, DType.INT32), b=top_k)
    y: Value = ops.where(condition=asked, a=least, b=number(ops, 0))
    return y


def _nucleus(ops: Ops, ordered: Value, kth: Value, top_p: Value) -> Value:
    """[R, 1]: the smallest value of the shortest prefix that reaches top_p; 0 from top_p 1 on."""
    size = ordered.shape[1]
    left = ops.le(a=kth, b=ordered)
    sums = ops.cumsum(x=ops.where(condition=left, a=ordered, b=number(ops, 0)))
    short = as_float(ops, ops.lt(a=sums, b=ops.mul(a=sums.narrow(1, size - 1, 1), b=top_p)))
    ranks = ops.arange(length=size, dtype=F32.value).reshape(1, size)
    inside = ops.le(a=ranks, b=ops.reduce_sum(x=short))
    values = ops.where(condition=left, a=ordered, b=number(ops, ABOVE))
    least = ops.reduce_min(x=ops.where(condition=inside, a=values, b=number(ops, ABOVE)))
    y: Value = ops.where(condition=ops.lt(a=top_p, b=number(ops, 1)), a=least, b=number(ops, 0))
    return y


def _first_beyond(ops: Ops, kept: Value, noise: Value) -> Value:
    """[R]: the first index whose running sum exceeds noise * total, or else reaches the total.

    -1 where the total is not positive, as a NaN is not.
    """
    sums = ops.cumsum(x=kept)
    total = sums.narrow(1, kept.shape[1] - 1, 1)
    beyond = as_float(ops, ops.lt(a=ops.mul(a=total, b=noise), b=sums))
    complete = as_float(ops, ops.le(a=total, b=sums))
    first = ops.argmax(x=ops.maximum(a=beyond, b=complete))
    there = ops.lt(a=number(ops, 0), b=total).reshape(kept.shape[0])
    y: Value = ops.where(condition=there, a=first, b=number(ops, -1, DType.INT32))
    return y
