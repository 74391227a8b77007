"""Qwen 2 and 2.5: biases on query, key and value; a window above some layer where asked for."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import hf_config, late_windows, windowed_layers
from anychip.model.naming import GGUF, HF


def _from_hf(read: Fields) -> ModelConfig:
    layers = windowed_layers(late_windows(read))
    return hf_config(read, "qwen2", attention_bias=True, layer_configs=layers)


QWEN2 = Family(
    name="qwen2",
    title="Qwen2, Qwen2.5, QwQ",
    hf_class="Qwen2ForCausalLM",
    hf_type="qwen2",
    hf_config=_from_hf,
    hf_names=HF,
    gguf="qwen2",
    gguf_config=lambda read: gguf_config(read, "qwen2"),
    gguf_names=GGUF,
)
