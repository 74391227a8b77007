"""Mixtral: Mistral whose MLPs are eight experts, two a token."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.expert_sources import sparse_sources
from anychip.model.experts_config import GGUF_KEYS, gguf_experts, hf_experts, with_experts
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import hf_config, hf_windows, windowed_layers
from anychip.model.layers.experts import sparse_decoder
from anychip.model.naming import GGUF_PAIRED, HF


def _from_hf(read: Fields) -> ModelConfig:
    inner = read.integer("intermediate_size")
    experts = hf_experts(read, inner=inner, renormalize=True)
    windows = windowed_layers(hf_windows(read))
    return with_experts(hf_config(read, "mixtral", experts=experts, layer_configs=windows))


def _from_gguf(read: Fields) -> ModelConfig:
    inner = read.integer("feed_forward_length")
    experts = gguf_experts(read, inner=inner, renormalize=True)
    return with_experts(gguf_config(read, "mixtral", takes=GGUF_KEYS, experts=experts))


MIXTRAL = Family(
    name="mixtral",
    title="Mixtral 8x7B, 8x22B",
    hf_class="MixtralForCausalLM",
    hf_type="mixtral",
    hf_config=_from_hf,
    hf_names=HF.called(
        router="block_sparse_moe.gate",
        expert_gate="block_sparse_moe.experts.{e}.w1",
        expert_up="block_sparse_moe.experts.{e}.w3",
        expert_down="block_sparse_moe.experts.{e}.w2",
    ),
    gguf="llama",
    gguf_key="expert_count",
    gguf_config=_from_gguf,
    gguf_names=GGUF_PAIRED,
    sources=sparse_sources,
    network=sparse_decoder,
)
