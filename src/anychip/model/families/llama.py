"""Llama 1 to 3.x, SmolLM2 and what shares their config class."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import hf_bias, hf_config, refuse_unless
from anychip.model.naming import GGUF_PAIRED, HF


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, sliding_window=0, partial_rotary_factor=1.0)
    return hf_config(read, "llama", **hf_bias(read), mlp_bias=read.flag("mlp_bias"))


LLAMA = Family(
    name="llama",
    title="Llama 1, 2, 3 to 3.3, SmolLM2",
    hf_class="LlamaForCausalLM",
    hf_type="llama",
    hf_config=_from_hf,
    hf_names=HF,
    gguf="llama",
    gguf_config=lambda read: gguf_config(read, "llama"),
    gguf_names=GGUF_PAIRED,
)
