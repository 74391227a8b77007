"""How mixtures of experts are laid out in GGUF files: all experts of a linear in one tensor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from families.gguf_copies import CONVERSIONS, Conversion, Named, Settings


def _experts(config: Any) -> Settings:
    count = getattr(config, "num_local_experts", None) or config.num_experts
    return {"expert_count": count, "expert_used_count": config.num_experts_per_tok}


def _mixtral(config: Any) -> Settings:
    return {**CONVERSIONS["Mistral"].own(config), **_experts(config)}


def _qwen(config: Any) -> Settings:
    found = {**CONVERSIONS["Qwen2"].own(config), **_experts(config)}
    found["expert_feed_forward_length"] = config.moe_intermediate_size
    if hasattr(config, "shared_expert_intermediate_size"):
        found["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    return found


def _gpt_oss(config: Any) -> Settings:
    return {
        **CONVERSIONS["Qwen2"].own(config),
        **_experts(config),
        "expert_feed_forward_length": config.intermediate_size,
        "attention.sliding_window": config.sliding_window,
    }


def halves(name: str, array: np.ndarray) -> Named:
    """Gate and up, which transformers holds as one tensor, gate first."""
    stem = name.removesuffix("gate_up_proj")
    if stem != name:
        inner = array.shape[1] // 2
        return {
            f"{stem}gate_proj.weight": array[:, :inner],
            f"{stem}up_proj.weight": array[:, inner:],
        }
    return {f"{name}.weight" if name.endswith("experts.down_proj") else name: array}


def fused(conversion: Conversion) -> Conversion:
    """As the converter's --fuse-gate-up-exps has it: gate and up of all experts in one tensor, gate
    first, which is how transformers holds them. gguf-py has no name for it in most families."""

    def split(name: str, array: np.ndarray) -> Named:
        return {} if "experts.gate_up_proj" in name else conversion.split(name, array)

    def more(model: Any) -> Named:
        found = conversion.more(model)
        for name, parameter in model.named_parameters():
            if name.endswith("experts.gate_up_proj"):
                layer = name.split("layers.")[1].split(".")[0]
                found[f"blk.{layer}.ffn_gate_up_exps.weight"] = parameter.detach().float().numpy()
        return found

    return dataclasses.replace(conversion, split=split, more=more)


def in_turn(name: str, array: np.ndarray) -> Named:
    """GPT-OSS has gate and up in turn, and matrices transposed."""
    if name.endswith("sinks"):
        return {f"{name}.weight": array}
    if ".experts." not in name:
        return {name: array}
    is_bias = name.endswith("_bias")
    ending = "bias" if is_bias else "weight"
    rows = array if is_bias else array.swapaxes(1, 2)
    stem = name.removesuffix("_bias")
    if stem.endswith("down_proj"):
        return {f"{stem}.{ending}": rows}
    stem = stem.removesuffix("gate_up_proj")
    return {f"{stem}gate_proj.{ending}": rows[:, ::2], f"{stem}up_proj.{ending}": rows[:, 1::2]}


def _deepseek(config: Any) -> Settings:
    sigmoid = type(config).__name__ == "DeepseekV3Config"
    found = {
        "vocab_size": config.vocab_size,
        "attention.head_count_kv": 1,
        "attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "attention.value_length": config.kv_lora_rank,
        "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length_mla": config.v_head_dim,
        "attention.q_lora_rank": config.q_lora_rank,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_count": config.n_routed_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_group_count": config.n_group,
        "expert_group_used_count": config.topk_group,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_count": config.n_shared_experts,
        "expert_weights_scale": float(config.routed_scaling_factor),
        "expert_weights_norm": bool(getattr(config, "norm_topk_prob", False)),
        "expert_gating_func": 2 if sigmoid else 1,
        "rope.dimension_count": config.qk_rope_head_dim,
        **CONVERSIONS["Qwen2"].own(config),
    }
    if "rope.scaling.type" in found:
        of_all = config.rope_parameters["mscale_all_dim"]
        found["rope.scaling.yarn_log_multiplier"] = 0.1 * of_all
    return found


def of_latents(config: Any) -> Conversion:
    """DeepSeek's, whose heads' keys are written transposed, and their values by themselves."""

    def split(name: str, array: np.ndarray) -> Named:
        stem = name.removesuffix("kv_b_proj.weight")
        if stem == name:
            return halves(name.replace("correction_bias", "correction.bias"), array)
        heads = array.reshape(config.num_attention_heads, -1, array.shape[-1])
        keys, values = heads[:, : config.qk_nope_head_dim], heads[:, config.qk_nope_head_dim :]
        return {f"{stem}k_b_proj.weight": keys.swapaxes(1, 2), f"{stem}v_b_proj.weight": values}

    return Conversion("deepseek2", own=_deepseek, split=split)


def _qwen3_next(config: Any) -> Settings:
    values = config.linear_num_value_heads
    return {
        **_qwen(config),
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.time_step_rank": values,
        "ssm.inner_size": config.linear_value_head_dim * values,
        "full_attention_interval": 4,
        "rope.dimension_count": int(
            config.head_dim * config.rope_parameters["partial_rotary_factor"]
        ),
    }


def of_states(config: Any, *, old: bool = False) -> Conversion:
    """Qwen3-Next's: all queries first, then all keys, all values, and gates by themselves.

    old: as files were at first: queries, keys, values and gates of one key head together.
    """
    keys = config.linear_key_head_dim
    values = (
        config.linear_value_head_dim * config.linear_num_value_heads // config.linear_num_key_heads
    )

    def split(name: str, array: np.ndarray) -> Named:
        if name.endswith("A_log"):
            return {name: -np.exp(array)}
        if name.endswith("dt_bias"):
            return {name.replace("dt_bias", "dt_proj.bias"): array}
        if "conv1d" in name:
            return {name: array.squeeze()}
        stem = name.removesuffix("qkvz.weight")
        if stem == name or old:
            return halves(name, array)
        heads = array.reshape(config.linear_num_key_heads, -1, array.shape[-1])
        ends = [keys, 2 * keys, 2 * keys + values]
        q, k, v, z = (part.reshape(-1, array.shape[-1]) for part in np.split(heads, ends, axis=1))
        return {f"{stem}qkv.weight": np.concatenate([q, k, v]), f"{stem}z.weight": z}

    unshifted = ("linear_attn.norm.weight",)
    return Conversion("qwen3next", plus=1.0, unshifted=unshifted, own=_qwen3_next, split=split)


EXPERT_CONVERSIONS = {
    "Mixtral": Conversion("llama", paired=True, own=_mixtral, split=halves),
    "Qwen2Moe": Conversion("qwen2moe", own=_qwen, split=halves),
    "Qwen3Moe": Conversion("qwen3moe", own=_qwen, split=halves),
    "GptOss": Conversion("gpt-oss", own=_gpt_oss, split=in_turn),
}
