"""Qwen's mixtures of experts: of Qwen 1.5 and 2, with an MLP that every token uses, and of 3."""

from __future__ import annotations

from dataclasses import replace

from anychip.model.config import ModelConfig
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
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import FULL, SLIDING, hf_config, hf_windows, windowed_layers
from anychip.model.layer_pattern import layer_count
from anychip.model.layers.experts import sparse_decoder
from anychip.model.naming import GGUF, HF_EXPERTS


def _qwen2_from_hf(read: Fields) -> ModelConfig:
    experts = hf_experts(
        read,
        inner=read.integer("moe_intermediate_size"),
        renormalize=read.flag("norm_topk_prob"),
        shared=read.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    config = hf_config(
        read,
        "qwen2_moe",
        experts=experts,
        attention_bias=read.flag("qkv_bias", True),
        layer_configs=windowed_layers(_windows(read, _every_other(read))),
    )
    return with_experts(config, hf_sparse_layers(read))


def _qwen3_from_hf(read: Fields) -> ModelConfig:
    experts = hf_experts(
        read,
        inner=read.integer("moe_intermediate_size"),
        renormalize=read.flag("norm_topk_prob"),
    )
    bias = read.flag("attention_bias")
    config = hf_config(
        read,
        "qwen3_moe",
        experts=experts,
        qk_norm="head",
        attention_bias=bias,
        output_bias=bias,
        layer_configs=windowed_layers(_windows(read)),
    )
    return with_experts(config, hf_sparse_layers(read))


def _windows(read: Fields, kinds: tuple[str, ...] | None = None) -> tuple[int, ...]:
    if not read.flag("use_sliding_window"):
        return (0,) * layer_count(read, "num_hidden_layers")
    return hf_windows(read, kinds)


def _every_other(read: Fields) -> tuple[str, ...]:
    """Below max_window_layers every second layer has the window, beginning with the first."""
    end = read.integer("max_window_layers", 28)
    layers = range(layer_count(read, "num_hidden_layers"))
    return tuple(SLIDING if i % 2 == 0 and i < end else FULL for i in layers)


def _qwen2_from_gguf(read: Fields) -> ModelConfig:
    shared = read.integer("expert_shared_feed_forward_length")
    experts = gguf_experts(read, shared=shared, shared_gate=True)
    return with_experts(gguf_config(read, "qwen2_moe", takes=GGUF_KEYS, experts=experts))


def _qwen3_from_gguf(read: Fields) -> ModelConfig:
    experts = gguf_experts(read, renormalize=True)
    return with_experts(
        gguf_config(read, "qwen3_moe", takes=GGUF_KEYS, experts=experts, qk_norm="head")
    )


QWEN2_MOE = Family(
    name="qwen2_moe",
    title="Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
    hf_class="Qwen2MoeForCausalLM",
    hf_type="qwen2_moe",
    hf_config=_qwen2_from_hf,
    hf_names=HF_EXPERTS,
    gguf="qwen2moe",
    gguf_config=_qwen2_from_gguf,
    gguf_names=GGUF,
    sources=sparse_sources,
    network=sparse_decoder,
)
QWEN3_MOE = replace(
    QWEN2_MOE,
    name="qwen3_moe",
    title="Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
    hf_class="Qwen3MoeForCausalLM",
    hf_type="qwen3_moe",
    hf_config=_qwen3_from_hf,
    gguf="qwen3moe",
    gguf_config=_qwen3_from_gguf,
)
