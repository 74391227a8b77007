"""Qwen 3, dense: no biases, but queries and keys are normed head by head."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import (
    hf_bias,
    hf_config,
    late_windows,
    refuse_unless,
    windowed_layers,
)
from anychip.model.naming import GGUF, HF


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, partial_rotary_factor=1.0)
    return hf_config(
        read.defaulting(head_dim=128),
        "qwen3",
        qk_norm="head",
        layer_configs=windowed_layers(late_windows(read)),
        **hf_bias(read),
    )


QWEN3 = Family(
    name="qwen3",
    title="Qwen3 (dense)",
    hf_class="Qwen3ForCausalLM",
    hf_type="qwen3",
    hf_config=_from_hf,
    hf_names=HF,
    gguf="qwen3",
    gguf_config=lambda read: gguf_config(read, "qwen3", qk_norm="head"),
    gguf_names=GGUF,
)
