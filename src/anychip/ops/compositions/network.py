"""Recipes of a network's operators outside attention. Inside they compute in float32."""

from __future__ import annotations

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Ops, Value, Weight
from anychip.ops.compositions.elements import F32, cast, contiguous, fresh, join, number


def embedding(ops: Ops, *, tokens: Value, table: Weight, dtype: str, scale: float) -> Value:
    """Look the rows up, scale in float32."""
    rows: Value = ops.gather_rows(table=table.dense, index=tokens)
    if scale != 1.0:
        rows = ops.mul(a=cast(ops, rows, F32), b=number(ops, scale))
    return cast(ops, rows, DType(dtype))


def rms_norm(ops: Ops, *, x: Value, weight: Value, eps: float) -> Value:
    """Mean of squares, rsqrt, two products."""
    return _normal(ops, x, weight, eps)


def qk_norm(
    ops: Ops, *, q: Value, k: Value, q_weight: Value, k_weight: Value, eps: float
) -> tuple[Value, Value]:
    """As rms_norm, over the last of three dimensions."""
    return _normal(ops, q, q_weight, eps), _normal(ops, k, k_weight, eps)


def _normal(ops: Ops, x: Value, weight: Value, eps: float) -> Value:
    """x over its root mean square along the last dimension, times the weight."""
    wide = cast(ops, x, F32)
    squares = ops.mul(a=wide, b=wide)
    mean = ops.reduce_mean(x=squares)
    factor = ops.rsqrt(x=ops.add(a=mean, b=number(ops, eps)))
    normal = ops.mul(a=wide, b=factor)
    return cast(ops, ops.mul(a=normal, b=weight), x.dtype)


def add_rms_norm(
    ops: Ops, *, x: Value, residual: Value, weight: Value, eps: float
) -> tuple[Value, Value]:
    """Add, then the norm of the rounded sum."""
    total = ops.add(a=x, b=residual)
    return ops.rms_norm(x=total, weight=weight, eps=eps), total


def rotary_embedding(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    q: Value,
    k: Value,
    positions: Value,
    cos_sin: Value,
    rotary_dim: int,
    neox: bool,
) -> tuple[Value, Value]:
    """Gather the rows of the table once, then rotate queries and keys."""
    half = rotary_dim // 2
    rows: Value = ops.gather_rows(table=cos_sin, index=positions)
    tokens = rows.shape[0]
    cos = contiguous(ops, rows.narrow(1, 0, half)).reshape(1, tokens, 1, half)
    sin = contiguous(ops, rows.narrow(1, half, half)).reshape(1, tokens, 1, half)
    return _rotate(ops, q, (cos, sin), neox), _rotate(ops, k, (cos, sin), neox)


def _rotate(ops: Ops, x: Value, table: tuple[Value, Value], neox: bool) -> Value:
    """x [T, heads, D]; table: cosines and sines, [1, T, 1, rotary_dim / 2] each."""
    tokens, heads, dim = x.shape
    half = table[0].shape[3]
    turned = contiguous(ops, cast(ops, x.narrow(2, 0, 2 * half), F32))
    pairs = (
        turned.reshape(tokens, heads, 2, half).transpose(2, 0, 1, 3)
        if neox
        else turned.reshape(tokens, heads, half, 2).transpose(3, 0, 1, 2)
    )
    both = _turn(ops, pairs, table)
    back = both.transpose(1, 2, 0, 3) if neox else both.transpose(1, 2, 3, 0)
    y = fresh(ops, back, x.dtype).reshape(tokens, heads, 2 * half)
    if dim == 2 * half:
        return y
    rest = x.narrow(2, 2 * half, dim - 2 * half)
    whole = join(ops, [y.transpose(2, 0, 1), rest.transpose(2, 0, 1)])
    return fresh(ops, whole.transpose(1, 2, 0), x.dtype)


def _turn(ops: Ops, pairs: Value, table: tuple[Value, Value]) -> Value:
    """pairs [2, T, heads, rotary_dim / 2]: (a, b) -> (a cos - b sin, b cos + a sin)."""
    cos, sin = table
    a, b = pairs.narrow(0, 0, 1), pairs.narrow(0, 1, 1)
    first = ops.sub(a=ops.mul(a=a, b=cos), b=ops.mul(a=b, b=sin))
    second = ops.add(a=ops.mul(a=b, b=cos), b=ops.mul(a=a, b=sin))
    return join(ops, [first, second])


def _product(ops: Ops, x: Value, weight: Weight, dtype: DType) -> Value:
    """x @ weight.T; where the two dtypes differ, both as float32."""
    dense = weight.dense
    if x.dtype != dense.dtype:
        x, dense = cast(ops, x, F32), cast(ops, dense, F32)
    y: Value = ops.matmul(a=x, b=dense, transpose_b=True, dtype=dtype.value)
    return y


def linear(ops: Ops, *, x: Value, weight: Weight, bias: Value | None = None) -> Value:
    """One product; the bias is added before rounding."""
    if bias is None:
        return _product(ops, x, weight, x.dtype)
    y = ops.add(a=_product(ops, x, weight, F32), b=bias)
    return cast(ops, y, x.dtype)


def lm_head(ops: Ops, *, x: Value, weight: Weight, scale: float, softcap: float) -> Value:
    """One product in float32, scaled and capped where asked."""
    logits = _product(ops, x, weight, F32)
    if scale != 1.0:
        logits = ops.mul(a=logits, b=number(ops, scale))
    if softcap > 0:
        logits = ops.softcap(x=logits, cap=softcap)
    return logits


def silu_and_mul(ops: Ops, *, x: Value) -> Value:
    """silu of the first half times the second."""
    gate, up = _halves(ops, x)
    return cast(ops, ops.mul(a=ops.silu(x=gate), b=up), x.dtype)


def gelu_tanh_and_mul(ops: Ops, *, x: Value) -> Value:
    """gelu_tanh of the first half times the second."""
    gate, up = _halves(ops, x)
    return cast(ops, ops.mul(a=ops.gelu_tanh(x=gate), b=up), x.dtype)


def swiglu_clamp_and_mul(ops: Ops, *, x: Value, alpha: float, limit: float) -> Value:
    """Both halves held within bounds, then three products."""
    gate, up = _halves(ops, x)
    high = number(ops, limit)
    gate = ops.minimum(a=gate, b=high)
    up = ops.maximum(a=ops.minimum(a=up, b=high), b=number(ops, -limit))
    share = ops.sigmoid(x=ops.mul(a=gate, b=number(ops, alpha)))
    y = ops.mul(a=ops.mul(a=gate, b=share), b=ops.add(a=up, b=number(ops, 1)))
    return cast(ops, y, x.dtype)


def _halves(ops: Ops, x: Value) -> tuple[Value, Value]:
    size = x.shape[1] // 2
    return cast(ops, x.narrow(1, 0, size), F32), cast(ops, x.narrow(1, size, size), F32)


def softcap(ops: Ops, *, x: Value, cap: float) -> Value:
    """cap * tanh(x / cap)."""
    limit = number(ops, cap)
    bent = ops.tanh(x=ops.div(a=cast(ops, x, F32), b=limit))
    return cast(ops, ops.mul(a=bent, b=limit), x.dtype)
