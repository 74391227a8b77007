"""Qwen3-Next: gated delta rule in three of four layers, gated attention in the fourth, experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from anychip.model.config import DeltaConfig, ExpertsConfig, LayerConfig, ModelConfig
from anychip.model.delta_sources import delta_sources, gated_attention_sources
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.expert_sources import sparse_sources
from anychip.model.experts_config import (
    GGUF_KEYS,
    gguf_experts,
    hf_experts,
    hf_sparse_layers,
    with_experts,
)
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config, gguf_layers
from anychip.model.hf_config import FULL, hf_config, refuse_unless
from anychip.model.layer_pattern import all_but_every, layer_count
from anychip.model.layers.attention import attention
from anychip.model.layers.decoder import decoder
from anychip.model.layers.delta import delta_layer
from anychip.model.layers.experts import mixture
from anychip.model.naming import GGUF, GGUF_FUSED_EXPERTS, HF_EXPERTS
from anychip.model.network import NetworkInputs
from anychip.model.sources import LayerTensors, WeightSource
from anychip.ops.trace import Ops
from anychip.ops.value import Value

RECURRENT = "linear_attention"
_DEFAULTS = {
    "head_dim": 256,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
"""What transformers takes where a file does not say."""


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, attention_bias=False)
    read = read.defaulting(**_DEFAULTS)
    delta = DeltaConfig(
        key_heads=read.integer("linear_num_key_heads"),
        value_heads=read.integer("linear_num_value_heads"),
        key_dim=read.integer("linear_key_head_dim"),
        value_dim=read.integer("linear_value_head_dim"),
        width=read.integer("linear_conv_kernel_dim"),
    )
    layers = tuple(LayerConfig(recurrent=kind == RECURRENT) for kind in _kinds(read))
    config = hf_config(
        read,
        "qwen3_next",
        delta=delta,
        qk_norm="head",
        output_gate=True,
        layer_configs=layers,
        experts=_experts(read),
    )
    return with_experts(config, hf_sparse_layers(read)) if config.experts else config


def _experts(read: Fields) -> ExpertsConfig | None:
    if not read.integer("num_experts"):
        return None
    return hf_experts(
        read,
        inner=read.integer("moe_intermediate_size"),
        renormalize=read.flag("norm_topk_prob", True),
        shared=read.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )


def _kinds(read: Fields) -> tuple[str, ...]:
    every = read.integer("full_attention_interval", 4)
    layers = range(1, layer_count(read, "num_hidden_layers") + 1)
    kinds = read.texts("layer_types") or tuple(RECURRENT if i % every else FULL for i in layers)
    unknown = sorted(set(kinds) - {FULL, RECURRENT})
    if unknown:
        raise unsupported("layer type", unknown[0], (FULL, RECURRENT))
    return kinds


def _from_gguf(read: Fields) -> ModelConfig:
    heads, values = read.integer("ssm.time_step_rank"), read.integer("ssm.inner_size")
    if heads < 1 or values % heads:
        raise CheckpointError(
            f"'{read.prefix}ssm.inner_size' is {values}, which does not divide into {heads} value "
            f"heads ('{read.prefix}ssm.time_step_rank')"
        )
    delta = DeltaConfig(
        key_heads=read.integer("ssm.group_count"),
        value_heads=heads,
        key_dim=read.integer("ssm.state_size"),
        value_dim=values // heads,
        width=read.integer("ssm.conv_kernel"),
    )
    shared = read.integer("expert_shared_feed_forward_length")
    config = gguf_config(
        read,
        "qwen3_next",
        takes=GGUF_KEYS,
        delta=delta,
        qk_norm="head",
        output_gate=True,
        layer_configs=tuple(LayerConfig(recurrent=is_one) for is_one in _recurrent(read)),
        experts=gguf_experts(read, renormalize=True, shared=shared, shared_gate=True),
    )
    return with_experts(config)


def _recurrent(read: Fields) -> tuple[bool, ...]:
    """Each layer's own mark, layers that predict further tokens left out, or a period."""
    layers, key = gguf_layers(read), "attention.recurrent_layers"
    marks = read.settings.get(read.prefix + key)
    if marks is None:
        return all_but_every(read.integer("full_attention_interval", 4), layers)
    if not isinstance(marks, list) or len(marks) < layers:
        raise CheckpointError(f"'{read.prefix}{key}' does not tell of {layers} layers")
    return tuple(bool(mark) for mark in marks[:layers])


def _mixing_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    one = delta_sources if layer.config.layer(layer.i).recurrent else gated_attention_sources
    return one(layer)


def _mixing(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    one = delta_layer if given.config.layer(layer).recurrent else attention
    return one(ops, given, layer, x, residual)


def _network(ops: Ops, given: NetworkInputs) -> Value:
    return decoder(ops, given, attention=_mixing, mlp=mixture)


_NAMES = HF_EXPERTS.called(
    delta_in="linear_attn.in_proj_qkvz",
    delta_gates="linear_attn.in_proj_ba",
    delta_conv="linear_attn.conv1d",
    delta_bias="linear_attn.dt_bias",
    delta_rate="linear_attn.A_log",
    delta_norm="linear_attn.norm",
    delta_output="linear_attn.out_proj",
)
_GGUF_NAMES = GGUF.called(
    delta_qkv="attn_qkv",
    delta_z="attn_gate",
    delta_gates="ssm_ba",
    delta_conv="ssm_conv1d",
    delta_bias="ssm_dt.bias",
    delta_rate="ssm_a",
    delta_norm="ssm_norm",
    delta_output="ssm_out",
    mlp_norm="post_attention_norm",
)
QWEN3_NEXT = Family(
    name="qwen3_next",
    title="Qwen3-Next-80B-A3B",
    hf_class="Qwen3NextForCausalLM",
    hf_type="qwen3_next",
    hf_config=_from_hf,
    hf_names=replace(
        _NAMES,
        norm_plus=1.0,
        unshifted=frozenset({"delta_norm"}),
        logarithms=frozenset({"delta_rate"}),
    ),
    gguf="qwen3next",
    gguf_config=_from_gguf,
    gguf_names=replace(_GGUF_NAMES, optional={"delta_in": "ssm_in", **GGUF_FUSED_EXPERTS}),
    sources=partial(sparse_sources, mixing=_mixing_sources),
    network=_network,
)
