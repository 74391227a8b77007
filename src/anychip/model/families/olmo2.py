"""OLMo 2: norms behind attention and MLP alone; queries and keys normed over all heads."""

from __future__ import annotations

from typing import Any

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import hf_bias, hf_config, refuse_unless
from anychip.model.naming import GGUF, HF

_OWN: dict[str, Any] = {"qk_norm": "all", "pre_norms": False, "post_norms": True}


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, sliding_window=0, partial_rotary_factor=1.0)
    return hf_config(read.defaulting(rms_norm_eps=1e-5), "olmo2", **hf_bias(read), **_OWN)


OLMO2 = Family(
    name="olmo2",
    title="OLMo 2",
    hf_class="Olmo2ForCausalLM",
    hf_type="olmo2",
    hf_config=_from_hf,
    hf_names=HF.called(
        attention_post_norm="post_attention_layernorm",
        mlp_post_norm="post_feedforward_layernorm",
    ),
    gguf="olmo2",
    gguf_config=lambda read: gguf_config(read, "olmo2", **_OWN),
    gguf_names=GGUF,
)
"""With a window a file of that architecture is OLMo 3, which is refused."""
