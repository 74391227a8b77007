"""How mixtures of experts are laid out in GGUF files: all experts of a linear in one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from families.gguf_copies import CONVERSIONS, Conversion, Named, Settings

if TYPE_CHECKING:
    import numpy as np


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


EXPERT_CONVERSIONS = {
    "Mixtral": Conversion("llama", paired=True, own=_mixtral, split=halves),
    "Qwen2Moe": Conversion("qwen2moe", own=_qwen, split=halves),
    "Qwen3Moe": Conversion("qwen3moe", own=_qwen, split=halves),
    "GptOss": Conversion("gpt-oss", own=_gpt_oss, split=in_turn),
}
