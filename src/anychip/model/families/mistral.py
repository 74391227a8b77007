"""Mistral 7B and its like: Llama with a window, in its first version."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.hf_config import hf_config, hf_windows, windowed_layers
from anychip.model.naming import HF


def _from_hf(read: Fields) -> ModelConfig:
    if "sliding_window" not in read.settings:  # null is none
        read = read.defaulting(sliding_window=4096)
    return hf_config(read, "mistral", layer_configs=windowed_layers(hf_windows(read)))


MISTRAL = Family(
    name="mistral",
    title="Mistral 7B 0.1 to 0.3, Nemo, Small (text)",
    hf_class="MistralForCausalLM",
    hf_type="mistral",
    hf_config=_from_hf,
    hf_names=HF,
    gguf="llama",  # which LLAMA reads
)
