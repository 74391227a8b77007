"""GPT-OSS: sinks, every second layer with a window, biases everywhere, a clamped activation.

Weights in bfloat16 lie transposed, gate and up row by row in turn; those in MXFP4 as [N, K].
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anychip.model.config import ModelConfig
from anychip.model.errors import CheckpointError
from anychip.model.expert_sources import sparse_sources
from anychip.model.experts_config import GGUF_KEYS, gguf_experts, hf_experts, with_experts
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config, gguf_windows
from anychip.model.hf_config import FULL, SLIDING, hf_config, hf_windows, windowed_layers
from anychip.model.layer_pattern import layer_count
from anychip.model.layers.experts import sparse_decoder
from anychip.model.naming import GGUF, HF

_ALPHA, _LIMIT = 1.702, 7.0
"""Of the activation, where the file does not say."""

_MIXTURE: dict[str, Any] = {"scoring": "softmax_topk", "router_bias": True, "bias": True}
_NETWORK: dict[str, Any] = {"activation": "swiglu_clamp", "sinks": True}


def _from_hf(read: Fields) -> ModelConfig:
    if not (read.has("rope_parameters") or read.has("rope_scaling")):
        raise CheckpointError("config.json has no 'rope_scaling'")
    layers, bias = layer_count(read, "num_hidden_layers"), read.flag("attention_bias", True)
    experts = hf_experts(
        read,
        **_MIXTURE,
        inner=read.integer("intermediate_size"),
        alpha=read.number("swiglu_alpha", _ALPHA),
        limit=read.number("swiglu_limit", _LIMIT),
        transposed=not read.has("quantization_config"),
    )
    windows = hf_windows(read, tuple(FULL if i % 2 else SLIDING for i in range(layers)))
    config = hf_config(
        read,
        "gpt_oss",
        **_NETWORK,
        experts=experts,
        attention_bias=bias,
        output_bias=bias,
        layer_configs=windowed_layers(windows),
    )
    return with_experts(config)


def _from_gguf(read: Fields) -> ModelConfig:
    config = gguf_config(
        read,
        "gpt_oss",
        takes=GGUF_KEYS | {"attention.sliding_window"},
        **_NETWORK,
        experts=gguf_experts(read, **_MIXTURE, alpha=_ALPHA, limit=_LIMIT),
        layer_configs=windowed_layers(gguf_windows(read, period=2)),
    )
    # Trained with a ramp whose ends are not whole numbers, which these files do not tell.
    return with_experts(replace(config, ropes=(replace(config.rope, truncate=False),)))


GPT_OSS = Family(
    name="gpt_oss",
    title="gpt-oss-20b, gpt-oss-120b",
    hf_class="GptOssForCausalLM",
    hf_type="gpt_oss",
    hf_config=_from_hf,
    hf_names=replace(
        HF.called(
            router="mlp.router",
            experts_gate_up="mlp.experts.gate_up_proj",
            experts_down="mlp.experts.down_proj",
        ),
        experts_in_turn=True,
    ),
    gguf="gpt-oss",
    gguf_config=_from_gguf,
    gguf_names=GGUF.called(mlp_norm="post_attention_norm"),
    sources=sparse_sources,
    network=sparse_decoder,
)
