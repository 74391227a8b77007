"""Gemma 2: every other layer has a window, norms before and behind, scores and logits capped."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.families.gemma import (
    GEMMA_SANDWICH_HF,
    gemma_gguf,
    gemma_hf,
    gguf_scale,
    optional_cap,
    sandwich_hf,
)
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_windows
from anychip.model.hf_config import FULL, SLIDING, hf_windows, windowed_layers
from anychip.model.layer_pattern import all_but_every, layer_count
from anychip.model.naming import GGUF

_TAKES = frozenset(
    {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"}
)
_LAYERS_27B = 46


def _from_hf(read: Fields) -> ModelConfig:
    local = all_but_every(2, layer_count(read, "num_hidden_layers"))
    kinds = tuple(SLIDING if is_local else FULL for is_local in local)
    windows = hf_windows(read.defaulting(sliding_window=4096), kinds)
    return gemma_hf(
        read,
        "gemma2",
        layer_configs=windowed_layers(windows),
        attention_softcap=optional_cap(read, "attn_logit_softcapping", 50.0),
        logit_softcap=optional_cap(read, "final_logit_softcapping", 30.0),
        **sandwich_hf(read),
    )


def _from_gguf(read: Fields) -> ModelConfig:
    return gemma_gguf(
        read,
        "gemma2",
        takes=_TAKES,
        post_norms=True,
        attention_scale=gguf_scale(read, _LAYERS_27B),
        layer_configs=windowed_layers(gguf_windows(read, period=2, window=4096)),
        attention_softcap=read.number("attn_logit_softcapping", 50.0),
        logit_softcap=read.number("final_logit_softcapping", 30.0),
    )


GEMMA2 = Family(
    name="gemma2",
    title="Gemma 2",
    hf_class="Gemma2ForCausalLM",
    hf_type="gemma2",
    hf_config=_from_hf,
    hf_names=GEMMA_SANDWICH_HF,
    gguf="gemma2",
    gguf_config=_from_gguf,
    gguf_names=GGUF,
)
