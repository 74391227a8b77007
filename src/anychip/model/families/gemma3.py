"""Gemma 3, text: five layers with a window and a rope of their own, then one that sees all."""

from __future__ import annotations

from dataclasses import replace

from anychip.model.config import LayerConfig, ModelConfig
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
from anychip.model.hf_config import FULL, SLIDING, hf_windows, refuse_unless
from anychip.model.hf_rope import hf_rope
from anychip.model.layer_pattern import all_but_every, layer_count
from anychip.model.naming import GGUF
from anychip.model.rope_config import RopeConfig

_TAKES = frozenset({"attention.sliding_window", "final_logit_softcapping"})
_GLOBAL_THETA, _LOCAL_THETA = 1e6, 1e4
_LAYERS_27B = 62


def _layers(windows: tuple[int, ...]) -> tuple[LayerConfig, ...]:
    """Those with a window have the second rope."""
    return tuple(LayerConfig(window=w, rope=1 if w else 0) for w in windows)


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, attn_logit_softcapping=0.0)  # transformers passes it over
    read = read.defaulting(head_dim=256, max_position_embeddings=131072)
    layers, period = (
        layer_count(read, "num_hidden_layers"),
        read.integer("sliding_window_pattern", 6),
    )
    kinds = tuple(SLIDING if is_local else FULL for is_local in all_but_every(period, layers))
    return gemma_hf(
        read,
        "gemma3",
        qk_norm="head",
        ropes=(_global_rope(read), _local_rope(read)),
        layer_configs=_layers(hf_windows(read.defaulting(sliding_window=4096), kinds)),
        logit_softcap=optional_cap(read, "final_logit_softcapping", 0.0),
        **sandwich_hf(read),
    )


def _global_rope(read: Fields) -> RopeConfig:
    read = read.defaulting(rope_theta=_GLOBAL_THETA)
    return hf_rope(read, read.integer("head_dim"), layer_type=FULL)


def _local_rope(read: Fields) -> RopeConfig:
    """Before transformers 5 a theta alone, which no scaling concerned."""
    found = read.settings.get("rope_parameters")
    by_type = isinstance(found, dict) and SLIDING in found
    own = {
        "rope_theta": read.number("rope_local_base_freq", _LOCAL_THETA),
        "rope_parameters": found if by_type else None,
        "rope_scaling": None,
    }
    read = replace(read, settings={**read.settings, **own})
    return hf_rope(read, read.integer("head_dim"), layer_type=SLIDING)


def _from_gguf(read: Fields) -> ModelConfig:
    config = gemma_gguf(
        read.defaulting(**{"rope.freq_base": _GLOBAL_THETA}),
        "gemma3",
        takes=_TAKES,
        qk_norm="head",
        post_norms=True,
        attention_scale=gguf_scale(read, _LAYERS_27B),
        logit_softcap=read.number("final_logit_softcapping", 0.0),
    )
    theta = read.number("rope.freq_base_swa", _LOCAL_THETA)
    ropes = (config.rope, RopeConfig(theta, config.rope.rotary_dim))
    return replace(config, ropes=ropes, layer_configs=_layers(gguf_windows(read, period=6)))


GEMMA3 = Family(
    name="gemma3",
    title="Gemma 3 (text)",
    hf_class="Gemma3ForCausalLM",
    hf_type="gemma3_text",
    hf_config=_from_hf,
    hf_names=GEMMA_SANDWICH_HF,
    gguf="gemma3",
    gguf_config=_from_gguf,
    gguf_names=GGUF,
)
