"""The gated MLP: as one fused rung where a norm stands before it."""

from __future__ import annotations

from anychip.model.layers.residual import enter, leave
from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value


def mlp(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    """Norm, gate and up, activation, down; see `Sublayer`."""
    name = f"layers.{layer}."
    block = _block if given.config.pre_norms else _unrolled
    y, total = block(ops, given, name, x, residual)
    return leave(ops, given, name + "mlp_post_norm", y), total


def gated(ops: Ops, given: NetworkInputs, name: str, x: Value) -> Value:
    """down(activation(gate and up)) of x [T, K]; `name` is the prefix of its weights."""
    inner = ops.linear(x, given.weights[name + "gate_up"], given.optional(name + "gate_up_bias"))
    inner = getattr(ops, f"{given.config.activation}_and_mul")(inner)
    y: Value = ops.linear(inner, given.weights[name + "down"], given.optional(name + "down_bias"))
    return y


def _block(
    ops: Ops, given: NetworkInputs, name: str, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    y, total = ops.mlp_block(
        x,
        residual,
        given.weights[name + "mlp_norm"],
        given.weights[name + "gate_up"],
        given.optional(name + "gate_up_bias"),
        given.weights[name + "down"],
        given.optional(name + "down_bias"),
        eps=given.config.norm_eps,
        activation=given.config.activation,
    )
    return y, total


def _unrolled(
    ops: Ops, given: NetworkInputs, name: str, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    y, total = enter(ops, given, name + "mlp_norm", x, residual)
    return gated(ops, given, name, y), total
