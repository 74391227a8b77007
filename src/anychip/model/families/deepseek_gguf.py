"""DeepSeek-V2 and V3 as GGUF files tell them: one architecture, set apart by the experts' gate."""

from __future__ import annotations

import dataclasses

from anychip.model.config import ExpertsConfig, LatentConfig, LayerConfig, ModelConfig
from anychip.model.errors import unsupported
from anychip.model.experts_config import GGUF_KEYS
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config, gguf_layers, gguf_rope
from anychip.model.hf_rope import yarn_mscale
from anychip.model.rope_config import RopeConfig

SOFTMAX, SIGMOID = 1, 2
"""llama.cpp's numbers of the gates of V2 and V3."""


def deepseek_gguf(read: Fields) -> ModelConfig:
    """Raises CheckpointError, UnsupportedModel."""
    rotated = read.integer("rope.dimension_count")
    latent = LatentConfig(
        rank=read.integer("attention.kv_lora_rank"),
        rotated=rotated,
        nope=read.integer("attention.key_length_mla") - rotated,
        value=read.integer("attention.value_length_mla"),
        query_rank=read.integer("attention.q_lora_rank", 0),
    )
    dense, layers = read.integer("leading_dense_block_count"), gguf_layers(read)
    rope, sharpening = _rope(read, rotated)
    return gguf_config(
        read,
        "deepseek2",
        takes=GGUF_KEYS | {"expert_group_count"},
        kv_heads=1,
        head_dim=latent.rank + rotated,
        latent=latent,
        ropes=(rope,),
        attention_scale=(latent.nope + rotated) ** -0.5 * sharpening,
        experts=_experts(read),
        layer_configs=tuple(LayerConfig(experts=i >= dense) for i in range(layers)),
    )


def _rope(read: Fields, rotated: int) -> tuple[RopeConfig, float]:
    """The rotation, and what scores are multiplied by: yarn's temperature, squared.

    yarn_log_multiplier is a tenth of the file's mscale_all_dim; where it is told, mscale is that
    too, and cosines and sines keep their size.
    """
    rope = gguf_rope(read, rotated, interleaved=True)
    multiplier = read.number("rope.scaling.yarn_log_multiplier", 0.0)
    if rope.kind != "yarn" or not multiplier:
        return rope, 1.0
    kept = dataclasses.replace(rope, magnitude=1.0)
    return kept, yarn_mscale(rope.factor, 10.0 * multiplier) ** 2


def _experts(read: Fields) -> ExpertsConfig:
    gate = read.integer("expert_gating_func", SOFTMAX)
    if gate not in (SOFTMAX, SIGMOID):
        raise unsupported("expert_gating_func", gate, (str(SOFTMAX), str(SIGMOID)))
    sigmoid, inner = gate == SIGMOID, read.integer("expert_feed_forward_length")
    groups = read.integer("expert_group_count", 1) or 1
    return ExpertsConfig(
        count=read.integer("expert_count"),
        used=read.integer("expert_used_count"),
        inner=inner,
        scoring="sigmoid" if sigmoid else "softmax",
        choice_bias=sigmoid,
        renormalize=read.flag("expert_weights_norm"),
        groups=groups,
        groups_kept=read.integer("expert_group_used_count", groups) or groups,
        group_score="top2" if sigmoid else "max",
        scale=read.number("expert_weights_scale", 1.0) or 1.0,
        shared=inner * read.integer("expert_shared_count"),
    )
