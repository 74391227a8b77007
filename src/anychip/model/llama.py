"""The Llama family, dense: Llama 1 to 3, SmolLM2 and what shares their config class."""

from __future__ import annotations

from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value


def llama(ops: Ops, given: NetworkInputs) -> Value:
    """One step of the network: logits [R, V] of the rows that sample."""
    config, weights = given.config, given.weights
    x = ops.embedding(given.batch.tokens, weights["embedding"], dtype=given.dtype.value)
    residual = None
    for layer in range(config.layers):
        x, residual = _attention(ops, given, layer, x, residual)
        x, residual = _mlp(ops, given, layer, x, residual)
    x = ops.gather_rows(x, given.batch.last)
    residual = ops.gather_rows(residual, given.batch.last)
    y, _ = ops.add_rms_norm(x, residual, weights["final_norm"], eps=config.norm_eps)
    logits: Value = ops.lm_head(y, weights.get("lm_head", weights["embedding"]))
    return logits


def _attention(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    config, name = given.config, f"layers.{layer}."
    y, total = ops.attention_block(
        x,
        residual,
        given.weights[name + "attention_norm"],
        given.weights[name + "qkv"],
        given.optional(name + "qkv_bias"),
        given.weights[name + "attention_output"],
        given.optional(name + "attention_output_bias"),
        given.weights["cos_sin"],
        given.caches[layer],
        given.batch.slots,
        **given.batch.attention(),
        heads=config.heads,
        eps=config.norm_eps,
        rotary_dim=config.rope.rotary_dim,
        neox=not config.rope.interleaved,
        scale=config.head_dim**-0.5,
    )
    return y, total


def _mlp(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    name = f"layers.{layer}."
    y, total = ops.mlp_block(
        x,
        residual,
        given.weights[name + "mlp_norm"],
        given.weights[name + "gate_up"],
        given.optional(name + "gate_up_bias"),
        given.weights[name + "down"],
        given.optional(name + "down_bias"),
        eps=given.config.norm_eps,
    )
    return y, total
