"""A mixture of experts in the place of the MLP, and the outline of a decoder that has some."""

from __future__ import annotations

from functools import partial

from anychip.contract.dtype import DType
from anychip.model.config import ExpertsConfig
from anychip.model.layers.decoder import decoder
from anychip.model.layers.mlp import gated, mlp
from anychip.model.layers.residual import enter, leave
from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value, WeightRef


def mixture(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    """Norm, router, experts and what every token uses besides; the plain MLP in a layer without
    experts. See `Sublayer`."""
    if not given.config.layer(layer).experts:
        return mlp(ops, given, layer, x, residual)
    name, experts = f"layers.{layer}.", given.config.experts
    assert experts is not None
    y, total = enter(ops, given, name + "mlp_norm", x, residual)
    mixed = _routed(ops, given, name, y)
    if experts.shared:
        mixed = ops.add(mixed, _shared(ops, given, name, y))
    return leave(ops, given, name + "mlp_post_norm", mixed), total


sparse_decoder = partial(decoder, mlp=mixture)


def _routed(ops: Ops, given: NetworkInputs, name: str, x: Value) -> Value:
    """The weighted sum of the experts that each token of x [T, K] goes to."""
    experts = given.config.experts
    assert experts is not None
    logits = ops.lm_head(x, given.weights[name + "router"])
    if experts.router_bias:
        logits = ops.add(logits, given.weights[name + "router_bias"])
    bias = given.weights[name + "choice_bias"] if experts.choice_bias else None
    weights, ids = _routes(ops, experts, logits, bias)
    gate_up, down = name + "experts_gate_up", name + "experts_down"
    y: Value = ops.expert_mlp(
        x,
        given.weights[gate_up],
        given.weights[gate_up + "_bias"] if experts.bias else None,
        given.weights[down],
        given.weights[down + "_bias"] if experts.bias else None,
        weights,
        ids,
        experts_count=experts.count,
        activation=given.config.activation,
        alpha=experts.alpha,
        limit=experts.limit,
    )
    return y


def _routes(
    ops: Ops, experts: ExpertsConfig, logits: Value, bias: WeightRef | Value | None
) -> tuple[Value, Value]:
    """Weights and ids [T, P] of logits [T, E]."""
    weights, ids = ops.route_experts(
        logits,
        bias,
        k=experts.used,
        scoring=experts.scoring,
        renormalize=experts.renormalize,
        groups=experts.groups,
        groups_kept=experts.groups_kept,
        group_score=experts.group_score,
        scale=experts.scale,
    )
    return weights, ids


def _shared(ops: Ops, given: NetworkInputs, name: str, x: Value) -> Value:
    """The MLP that every token uses, times the sigmoid of the token's score where there is one."""
    y = gated(ops, given, name + "shared_", x)
    if given.config.experts is None or not given.config.experts.shared_gate:
        return y
    gate = ops.sigmoid(ops.lm_head(x, given.weights[name + "shared_router"]))
    wide = y if y.dtype is DType.FLOAT32 else ops.cast(y, dtype=DType.FLOAT32.value)
    product: Value = ops.mul(wide, gate)
    if product.dtype is y.dtype:
        return product
    rounded: Value = ops.cast(product, dtype=y.dtype.value)
    return rounded
