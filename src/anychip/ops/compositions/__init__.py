"""Recipes: every operator that is no primitive, from primitives or from lower rungs.

With them a chip that brings primitives alone runs every model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anychip.ops.compositions import (
    attention,
    blocks,
    cache,
    experts,
    latent,
    logits,
    network,
    sampling,
)

Recipe = Callable[..., Any]
"""recipe(ops, inputs and attributes by name) -> Value, tuple of them in output order, or None.
Absent inputs are passed as None, attributes with their defaults filled in."""

COMPOSITIONS: dict[str, Recipe] = {
    "embedding": network.embedding,
    "rms_norm": network.rms_norm,
    "add_rms_norm": network.add_rms_norm,
    "qk_norm": network.qk_norm,
    "rotary_embedding": network.rotary_embedding,
    "linear": network.linear,
    "lm_head": network.lm_head,
    "silu_and_mul": network.silu_and_mul,
    "gelu_tanh_and_mul": network.gelu_tanh_and_mul,
    "swiglu_clamp_and_mul": network.swiglu_clamp_and_mul,
    "softcap": network.softcap,
    "route_experts": experts.route_experts,
    "grouped_linear": experts.grouped_linear,
    "expert_mlp": experts.expert_mlp,
    "kv_write": cache.kv_write,
    "kv_copy_pages": cache.kv_copy_pages,
    "paged_attention": attention.paged_attention,
    "sink_attention": attention.sink_attention,
    "latent_write": cache.latent_write,
    "latent_attention": latent.latent_attention,
    "expanded_attention": latent.expanded_attention,
    "attention_block": blocks.attention_block,
    "mlp_block": blocks.mlp_block,
    "softmax": sampling.softmax,
    "log_softmax": sampling.log_softmax,
    "greedy": sampling.greedy,
    "sample": sampling.sample,
    "mask_logits": logits.mask_logits,
    "adjust_logits": logits.adjust_logits,
    "token_logprobs": logits.token_logprobs,
    "top_logprobs": logits.top_logprobs,
}
