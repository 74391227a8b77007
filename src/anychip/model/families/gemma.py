"""Gemma 1, and what all Gemmas share: norms held less 1, embeddings grown by sqrt(hidden size)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import hf_activation, hf_bias, hf_config, refuse_unless
from anychip.model.naming import GGUF, HF

GEMMA_HF = replace(HF, norm_plus=1.0)
"""GGUF files have the 1 added already."""


GEMMA_SANDWICH_HF = GEMMA_HF.called(
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)
"""Of Gemma 2 and 3, which norm before and behind."""


def gemma_hf(read: Fields, name: str, **own: Any) -> ModelConfig:
    """What config.json says of any Gemma; own: as hf_config's."""
    refuse_unless(read, use_bidirectional_attention=False, partial_rotary_factor=1.0)
    read = read.defaulting(head_dim=256, tie_word_embeddings=True)
    scale = math.sqrt(read.positive("hidden_size"))
    return hf_config(read, name, embedding_scale=scale, **hf_bias(read), **own)


def gemma_gguf(
    read: Fields, name: str, *, takes: frozenset[str] = frozenset(), **own: Any
) -> ModelConfig:
    """What GGUF says of any Gemma; arguments as gguf_config's."""
    scale = math.sqrt(read.positive("embedding_length"))
    own |= {"embedding_scale": scale, "activation": "gelu_tanh"}
    return gguf_config(read, name, takes=takes, **own)


def sandwich_hf(read: Fields) -> dict[str, Any]:
    """What Gemma 2 and 3 have and Gemma 1 has not."""
    return {
        "activation": hf_activation(read, "hidden_activation", "gelu_pytorch_tanh"),
        "post_norms": True,
        "attention_scale": read.positive("query_pre_attn_scalar", 256.0) ** -0.5,
    }


def optional_cap(read: Fields, key: str, default: float) -> float:
    """Of scores or logits; 0: none. Missing is the default, null is none."""
    missing_or_given = read.settings.get(key, default) is not None
    return read.number(key, default) if missing_or_given else 0.0


def gguf_scale(read: Fields, largest: int) -> float:
    """Of q.k; 0: by the head. GGUF does not tell it: llama.cpp knows Gemma 2 and 3 of 27B, whose
    layers are `largest`, and scales their scores by hidden size / heads."""
    if read.integer("block_count") != largest:
        return 0.0
    per_head = read.integer("embedding_length") // int(read.positive("attention.head_count"))
    return 1 / math.sqrt(per_head)


def _from_hf(read: Fields) -> ModelConfig:
    # Published with "gelu", of which transformers makes the other: so it was trained.
    refuse_unless(read, hidden_activation="gelu_pytorch_tanh")
    if read.text("hidden_act", "gelu") != "gelu":
        refuse_unless(read, hidden_act="gelu_pytorch_tanh")
    return gemma_hf(read, "gemma", activation="gelu_tanh")


GEMMA = Family(
    name="gemma",
    title="Gemma 1, CodeGemma",
    hf_class="GemmaForCausalLM",
    hf_type="gemma",
    hf_config=_from_hf,
    hf_names=GEMMA_HF,
    gguf="gemma",
    gguf_config=lambda read: gemma_gguf(read, "gemma"),
    gguf_names=GGUF,
)
