"""Small steps that several recipes share."""

from __future__ import annotations

from collections.abc import Sequence

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Ops, Value

F32 = DType.FLOAT32


def number(ops: Ops, value: float, dtype: DType = F32) -> Value:
    """A constant of shape [1], to broadcast."""
    y: Value = ops.fill(shape=(1,), value=float(value), dtype=dtype.value)
    return y


def cast(ops: Ops, x: Value, dtype: DType) -> Value:
    """x in that dtype; x itself where it has it already."""
    if x.dtype == dtype:
        return x
    y: Value = ops.cast(x=x, dtype=dtype.value)
    return y


def contiguous(ops: Ops, x: Value) -> Value:
    """x, packed where it is a strided view."""
    y: Value = x if x.is_contiguous else ops.copy(x=x)
    return y


def fresh(ops: Ops, x: Value, dtype: DType) -> Value:
    """A new contiguous value of that dtype, also where nothing has to change."""
    y: Value = ops.copy(x=x) if x.dtype == dtype else ops.cast(x=x, dtype=dtype.value)
    return y


def as_float(ops: Ops, condition: Value) -> Value:
    """A bool value as 0.0 and 1.0."""
    y: Value = ops.cast(x=condition, dtype=F32.value)
    return y


def join(ops: Ops, parts: Sequence[Value]) -> Value:
    """Parts stacked along the first dimension; all other sizes agree."""
    if len(parts) == 1:
        return contiguous(ops, parts[0])
    rows = sum(p.shape[0] for p in parts)
    first = parts[0]
    y: Value = ops.fill(shape=(rows, *first.shape[1:]), value=0.0, dtype=first.dtype.value)
    indices: Value = ops.arange(length=rows, dtype="int32")
    start = 0
    for part in parts:
        index = indices.narrow(0, start, part.shape[0])
        ops.scatter_rows(target=y, source=part, index=index)
        start += part.shape[0]
    return y
