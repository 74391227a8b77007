"""A layer of the gated delta rule: a memory of fixed size in the place of keys and values.

Yang et al. 2024, Gated Delta Networks: queries, keys and values go through a short convolution,
queries and keys are of length 1, and each token corrects what the memory gives for its key.
"""

from __future__ import annotations

from anychip.contract.dtype import DType
from anychip.model.config import DeltaConfig
from anychip.model.layers.residual import enter
from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value

LENGTH_EPS = 1e-6
"""Added to the square of a query's or key's length, whatever the model's own epsilon is."""


def delta_layer(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    """Norm, projections, convolution, delta rule, gated norm, output; see `Sublayer`."""
    name, delta = f"layers.{layer}.", given.config.delta
    assert delta is not None
    y, total = enter(ops, given, name + "attention_norm", x, residual)
    rows = ops.linear(y, given.weights[name + "delta_in"], None)
    mixed_size = 2 * delta.keys + delta.values
    q, k, v = _convolved(ops, given, name, rows.narrow(1, 0, mixed_size))
    decay, beta = _gates(ops, given, name, y)
    mixed = ops.gated_delta_rule(
        q,
        k,
        v,
        decay,
        beta,
        given.states[name + "memory"],
        **given.batch.recurrent(),
        scale=delta.key_dim**-0.5,
    )
    gate = ops.silu(rows.narrow(1, mixed_size, delta.values))
    flat = ops.mul(_normed(ops, given, name, mixed), gate)
    return ops.linear(flat, given.weights[name + "delta_output"], None), total


def _convolved(
    ops: Ops, given: NetworkInputs, name: str, rows: Value
) -> tuple[Value, Value, Value]:
    """Queries and keys [T, G, K] of length 1, values [T, H, V]."""
    delta = given.config.delta
    assert delta is not None
    y = ops.causal_conv1d(
        rows,
        given.weights[name + "conv"],
        None,
        given.states[name + "conv"],
        **given.batch.recurrent(),
        activation="silu",
    )
    tokens, keys = y.shape[0], (delta.key_heads, delta.key_dim)
    q = y.narrow(1, 0, delta.keys).reshape(tokens, *keys)
    k = y.narrow(1, delta.keys, delta.keys).reshape(tokens, *keys)
    v = y.narrow(1, 2 * delta.keys, delta.values)
    q, k = _unit_length(ops, delta, q, k)
    return q, k, v.reshape(tokens, delta.value_heads, delta.value_dim)


def _unit_length(ops: Ops, delta: DeltaConfig, q: Value, k: Value) -> tuple[Value, Value]:
    """x / sqrt(sum(x**2) + eps): a norm by the mean, whose weight makes it one by the sum."""
    weight = ops.fill(shape=(delta.key_dim,), value=delta.key_dim**-0.5, dtype=DType.FLOAT32.value)
    q, k = ops.qk_norm(q, k, weight, weight, eps=LENGTH_EPS / delta.key_dim)
    return q, k


def _gates(ops: Ops, given: NetworkInputs, name: str, y: Value) -> tuple[Value, Value]:
    """decay and beta [T, H]: rate * softplus(a + bias), and sigmoid(b). A rate is below 0."""
    delta = given.config.delta
    assert delta is not None
    heads = delta.value_heads
    both = ops.lm_head(y, given.weights[name + "delta_gates"])
    beta = ops.sigmoid(both.narrow(1, 0, heads))
    steps = ops.add(both.narrow(1, heads, heads), given.weights[name + "delta_bias"])
    return ops.mul(_softplus(ops, steps), given.weights[name + "delta_rate"]), beta


def _softplus(ops: Ops, x: Value) -> Value:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which no x makes overflow."""
    zero, one = (ops.fill(shape=(1,), value=n, dtype=DType.FLOAT32.value) for n in (0.0, 1.0))
    rest = ops.log(ops.add(ops.exp(ops.neg(ops.abs(x))), one))
    y: Value = ops.add(ops.maximum(x, zero), rest)
    return y


def _normed(ops: Ops, given: NetworkInputs, name: str, mixed: Value) -> Value:
    """Every head by itself, [T, H * V]."""
    tokens, heads, size = mixed.shape
    rows = mixed.reshape(tokens * heads, size)
    y: Value = ops.rms_norm(rows, given.weights[name + "delta_norm"], eps=given.config.norm_eps)
    return y.reshape(tokens, heads * size)
