"""Where a sublayer meets the residual stream."""

from __future__ import annotations

from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value


def enter(
    ops: Ops, given: NetworkInputs, norm: str, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    """(input of the sublayer, sum): the sum of x and the residual, normed where there is a norm.

    norm: its weight's name.
    """
    weight, eps = given.optional(norm), given.config.norm_eps
    if weight is None:
        total = x if residual is None else ops.add(x, residual)
        return total, total
    if residual is None:
        return ops.rms_norm(x, weight, eps=eps), x
    y, total = ops.add_rms_norm(x, residual, weight, eps=eps)
    return y, total


def leave(ops: Ops, given: NetworkInputs, norm: str, y: Value) -> Value:
    """What a sublayer adds to the sum: normed and scaled where the family does so."""
    weight = given.optional(norm)
    if weight is not None:
        y = ops.rms_norm(y, weight, eps=given.config.norm_eps)
    if given.config.residual_scale == 1.0:
        return y
    scale = ops.fill(shape=(1,), value=given.config.residual_scale, dtype=y.dtype.value)
    scaled: Value = ops.mul(y, scale)
    return scaled
