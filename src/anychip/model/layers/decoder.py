"""The outline of a decoder: embedding, layers of attention and MLP, the last norm, logits."""

from __future__ import annotations

from collections.abc import Callable

from anychip.model.layers.attention import attention
from anychip.model.layers.mlp import mlp
from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value

Sublayer = Callable[[Ops, NetworkInputs, int, Value, Value | None], tuple[Value, Value]]
"""(ops, given, layer, x, residual) -> (y, sum): sum = x + residual, and y what is to be added to
it next. Each ends before its own addition, where a tensor-parallel all-reduce goes."""


def decoder(
    ops: Ops, given: NetworkInputs, *, attention: Sublayer = attention, mlp: Sublayer = mlp
) -> Value:
    """One step of the network: logits [R, V] of the rows that sample."""
    config, weights = given.config, given.weights
    x = ops.embedding(
        given.batch.tokens,
        weights["embedding"],
        dtype=given.dtype.value,
        scale=config.embedding_scale,
    )
    residual = None
    for layer in range(config.layers):
        x, residual = attention(ops, given, layer, x, residual)
        x, residual = mlp(ops, given, layer, x, residual)
    x = ops.gather_rows(x, given.batch.last)
    residual = ops.gather_rows(residual, given.batch.last)
    y, _ = ops.add_rms_norm(x, residual, weights["final_norm"], eps=config.norm_eps)
    logits: Value = ops.lm_head(
        y,
        weights.get("lm_head", weights["embedding"]),
        scale=config.logit_scale,
        softcap=config.logit_softcap,
    )
    return logits
