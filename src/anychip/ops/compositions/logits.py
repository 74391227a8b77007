"""Recipes of what surrounds a draw: masks, sparse changes of logits, log-probabilities."""

from __future__ import annotations

from math import inf

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Ops, Value
from anychip.ops.compositions.elements import as_float, cast, number

F32, I32 = DType.FLOAT32, DType.INT32
HALF = 16
"""Bits of half a word: float32 holds them exactly, a whole word it does not."""

MOST_ELEMENTS = 2**31
"""Logits that an int32 can count: elements are gathered by their place among all of them."""


def mask_logits(ops: Ops, *, logits: Value, mask: Value) -> Value:
    """Bit b of half a word h is set where (h + 1/2) / 2**(b + 1) rounds up.

    The 1/2 keeps the quotient away from what is rounded either way, so that an inexact division
    does no harm.
    """
    (rows, size), words = logits.shape, mask.shape[1]
    low, high = _halves(ops, mask)
    bits = ops.arange(length=2 * HALF, dtype=F32.value)
    upper = ops.le(a=number(ops, HALF), b=bits)
    places = ops.sub(a=bits, b=ops.mul(a=as_float(ops, upper), b=number(ops, HALF)))
    power = ops.pow(a=number(ops, 2), b=ops.add(a=places, b=number(ops, 1)))
    share = ops.div(a=number(ops, 1), b=ops.round(x=power))
    low, high = low.reshape(rows, words, 1), high.reshape(rows, words, 1)
    half = ops.where(condition=upper, a=high, b=low)
    quotient = ops.mul(a=half, b=share)
    allowed = ops.lt(a=quotient, b=ops.round(x=quotient)).reshape(rows, words * 2 * HALF)
    allowed = allowed.narrow(1, 0, size)
    y: Value = ops.where(condition=allowed, a=logits, b=number(ops, -inf))
    return y


def _halves(ops: Ops, words: Value) -> tuple[Value, Value]:
    """The lower and upper 16 bits of int32 words, unsigned, as float32, plus 1/2.

    A float32 of 31 bits may have been rounded up into the next upper half: then the lower one
    comes out negative, and one is given back.
    """
    zero, full = number(ops, 0, I32), number(ops, 2**HALF, I32)
    negative = ops.lt(a=words, b=zero)
    positive = ops.where(
        condition=negative, a=ops.sub(a=words, b=number(ops, -(2**31), I32)), b=words
    )
    estimate = ops.mul(a=cast(ops, positive, F32), b=number(ops, 2.0**-HALF))
    high = ops.minimum(a=cast(ops, estimate, I32), b=number(ops, 2 ** (HALF - 1) - 1, I32))
    low = ops.sub(a=positive, b=ops.mul(a=high, b=full))
    short = ops.lt(a=low, b=zero)
    low = ops.where(condition=short, a=ops.add(a=low, b=full), b=low)
    high = ops.sub(a=cast(ops, high, F32), b=as_float(ops, short))
    sign = ops.mul(a=as_float(ops, negative), b=number(ops, 2 ** (HALF - 1)))
    middle = number(ops, 0.5)
    high = ops.add(a=ops.add(a=high, b=sign), b=middle)
    return ops.add(a=cast(ops, low, F32), b=middle), high


def adjust_logits(
    ops: Ops, *, logits: Value, rows: Value, ids: Value, repetition: Value, bias: Value
) -> Value:
    """A copy, and K of its elements gathered, changed and scattered."""
    y: Value = ops.copy(x=logits)
    (count,), elements = rows.shape, _elements(logits)
    if count == 0 or elements == 0:
        return y
    used = ops.le(a=number(ops, 0, I32), b=rows)
    place = ops.add(a=ops.mul(a=rows, b=number(ops, logits.shape[1], I32)), b=ids)
    place = ops.where(condition=used, a=place, b=number(ops, -1, I32))
    found = ops.maximum(a=place, b=number(ops, 0, I32))
    old = ops.gather_rows(table=logits.reshape(elements, 1), index=found).reshape(count)
    less, more = ops.div(a=old, b=repetition), ops.mul(a=old, b=repetition)
    scaled = ops.where(condition=ops.lt(a=number(ops, 0), b=old), a=less, b=more)
    banned = number(ops, -inf)
    new = ops.where(
        condition=ops.eq(a=bias, b=banned), a=banned, b=ops.add(a=scaled, b=bias)
    ).reshape(count, 1)
    ops.scatter_rows(target=y.reshape(elements, 1), source=new, index=place)
    return y


def token_logprobs(ops: Ops, *, logits: Value, sampled: Value, given: Value) -> tuple[Value, Value]:
    """The token's logit is gathered; what is larger is counted as ones, exact below 2**24."""
    (rows, size), elements = logits.shape, _elements(logits)
    numbers = _numbers(ops, logits)
    zero = number(ops, 0, I32)
    ids = ops.where(condition=ops.le(a=zero, b=given), a=given, b=sampled)
    lines = ops.arange(length=rows, dtype=I32.value)
    place = ops.add(a=ops.mul(a=lines, b=number(ops, size, I32)), b=ops.maximum(a=ids, b=zero))
    own = ops.gather_rows(table=numbers.reshape(elements, 1), index=place)
    logprob = _less_total(ops, own, numbers, ops.reduce_max(x=numbers)).reshape(rows)
    larger = ops.reduce_sum(x=as_float(ops, ops.lt(a=own, b=numbers))).reshape(rows)
    rank = cast(ops, ops.add(a=larger, b=number(ops, 1)), I32)
    there = ops.le(a=zero, b=ids)
    nan = ops.sub(a=number(ops, inf), b=number(ops, inf))
    return (
        ops.where(condition=there, a=logprob, b=nan),
        ops.where(condition=there, a=rank, b=zero),
    )


def top_logprobs(ops: Ops, *, logits: Value, n: int) -> tuple[Value, Value]:
    """The n largest logits, less what makes them logarithms of probabilities."""
    numbers = _numbers(ops, logits)
    values, ids = ops.topk(x=numbers, k=n)
    return _less_total(ops, values, numbers, values.narrow(1, 0, 1)), ids


def _numbers(ops: Ops, logits: Value) -> Value:
    """NaN as -inf."""
    is_number = ops.eq(a=logits, b=logits)
    y: Value = ops.where(condition=is_number, a=logits, b=number(ops, -inf))
    return y


def _less_total(ops: Ops, values: Value, numbers: Value, top: Value) -> Value:
    """values [R, any] - top [R, 1] - log(sum(exp(numbers - top)))."""
    total = ops.reduce_sum(x=ops.exp(x=ops.sub(a=numbers, b=top)))
    y: Value = ops.sub(a=ops.sub(a=values, b=top), b=ops.log(x=total))
    return y


def _elements(logits: Value) -> int:
    """How many there are. Raises ValueError where an int32 cannot count them."""
    rows, size = logits.shape
    if rows * size >= MOST_ELEMENTS:
        raise ValueError(
            f"{rows} rows of {size} logits are more than 2**31 elements: take fewer rows a step"
        )
    return rows * size
