"""DeepSeek-V2 and V3: latent attention, experts in groups, experts that every token uses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from anychip.model.config import ExpertsConfig, LatentConfig, LayerConfig, ModelConfig
from anychip.model.errors import unsupported
from anychip.model.expert_sources import sparse_sources
from anychip.model.families.deepseek_gguf import deepseek_gguf
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.hf_config import hf_config, refuse_unless
from anychip.model.hf_rope import hf_rope, yarn_mscale
from anychip.model.latent_sources import latent_sources
from anychip.model.layer_pattern import layer_count
from anychip.model.layers.decoder import decoder
from anychip.model.layers.experts import mixture
from anychip.model.layers.latent import latent_attention
from anychip.model.naming import GGUF, HF_EXPERTS
from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value

_METHODS = {"greedy": 1, "group_limited_greedy": 0}
"""V2's ways to choose experts -> groups that there are then, 0: as n_group says."""


def _from_hf(read: Fields, name: str, experts: ExpertsConfig, **own: Any) -> ModelConfig:
    latent = LatentConfig(
        rank=read.integer("kv_lora_rank"),
        rotated=read.integer("qk_rope_head_dim"),
        nope=read.integer("qk_nope_head_dim"),
        value=read.integer("v_head_dim"),
        query_rank=read.integer("q_lora_rank") if read.has("q_lora_rank") else 0,
    )
    rope = hf_rope(read, latent.rotated, interleaved=read.flag("rope_interleave", True))
    dense, layers = read.integer("first_k_dense_replace"), layer_count(read, "num_hidden_layers")
    bias = read.flag("attention_bias")
    return hf_config(
        read,
        name,
        kv_heads=1,
        head_dim=latent.rank + latent.rotated,
        latent=latent,
        ropes=(rope,),
        attention_scale=(latent.nope + latent.rotated) ** -0.5 * _sharpening(read),
        attention_bias=bias,
        output_bias=bias,
        experts=experts,
        layer_configs=tuple(LayerConfig(experts=i >= dense) for i in range(layers)),
        **own,
    )


def _sharpening(read: Fields) -> float:
    """Yarn's temperature, squared since it is queries' and keys': only where the file asks so."""
    settings = read.settings.get("rope_parameters") or read.settings.get("rope_scaling") or {}
    found = Fields(settings if isinstance(settings, dict) else {}, "config.json rope settings")
    if found.text("rope_type", found.text("type", "default")) == "default":
        return 1.0
    scale = found.number("mscale_all_dim", 0.0)
    return yarn_mscale(found.number("factor"), scale) ** 2 if scale else 1.0


def _experts(read: Fields, **own: Any) -> ExpertsConfig:
    inner = read.integer("moe_intermediate_size")
    return ExpertsConfig(
        count=read.integer("n_routed_experts"),
        used=read.integer("num_experts_per_tok"),
        inner=inner,
        shared=inner * read.integer("n_shared_experts"),
        scale=read.number("routed_scaling_factor", 1.0),
        **own,
    )


def _v2(read: Fields) -> ModelConfig:
    refuse_unless(read, norm_topk_prob=False, scoring_func="softmax")
    method = read.text("topk_method", "greedy")
    if method not in _METHODS:
        raise unsupported("topk_method", method, _METHODS)
    grouped = not _METHODS[method]
    experts = _experts(
        read,
        groups=read.integer("n_group") if grouped else 1,
        groups_kept=read.integer("topk_group") if grouped else 1,
    )
    return _from_hf(read, "deepseek2", experts, mlp_bias=read.flag("mlp_bias"))


def _v3(read: Fields) -> ModelConfig:
    refuse_unless(read, scoring_func="sigmoid", topk_method="noaux_tc")
    experts = _experts(
        read,
        scoring="sigmoid",
        choice_bias=True,
        renormalize=read.flag("norm_topk_prob", True),
        groups=read.integer("n_group"),
        groups_kept=read.integer("topk_group"),
        group_score="top2",
    )
    return _from_hf(read, "deepseek3", experts)


def _network(ops: Ops, given: NetworkInputs) -> Value:
    return decoder(ops, given, attention=latent_attention, mlp=mixture)


_NAMES = HF_EXPERTS.called(
    query="self_attn.q_proj",
    query_down="self_attn.q_a_proj",
    query_down_norm="self_attn.q_a_layernorm",
    query_up="self_attn.q_b_proj",
    latent="self_attn.kv_a_proj_with_mqa",
    latent_norm="self_attn.kv_a_layernorm",
    expand="self_attn.kv_b_proj",
    shared_gate="mlp.shared_experts.gate_proj",
    shared_up="mlp.shared_experts.up_proj",
    shared_down="mlp.shared_experts.down_proj",
)
_GGUF_NAMES = GGUF.called(
    query_down="attn_q_a",
    query_down_norm="attn_q_a_norm",
    query_up="attn_q_b",
    latent="attn_kv_a_mqa",
    latent_norm="attn_kv_a_norm",
    expand_keys="attn_k_b",
    expand_values="attn_v_b",
)
"""Files from before 2025-04 have keys and values in one tensor, which are refused as incomplete."""

DEEPSEEK2 = Family(
    name="deepseek2",
    title="DeepSeek-V2, V2-Lite, V2.5",
    hf_class="DeepseekV2ForCausalLM",
    hf_type="deepseek_v2",
    hf_config=_v2,
    hf_names=_NAMES,
    gguf="deepseek2",
    gguf_config=deepseek_gguf,
    gguf_names=_GGUF_NAMES,
    sources=partial(sparse_sources, mixing=latent_sources),
    network=_network,
)
DEEPSEEK3 = replace(
    DEEPSEEK2,
    name="deepseek3",
    title="DeepSeek-V3, V3.1, R1",
    hf_class="DeepseekV3ForCausalLM",
    hf_type="deepseek_v3",
    hf_config=_v3,
    gguf_config=None,  # DEEPSEEK2 reads the files of both
    gguf_names=None,
)
