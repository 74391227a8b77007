"""Granite 3: Llama with four multipliers: of embeddings, scores, what is added, logits."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config
from anychip.model.hf_config import hf_bias, hf_config, refuse_unless
from anychip.model.naming import GGUF_PAIRED, HF

_TAKES = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, partial_rotary_factor=1.0)
    return hf_config(
        read,
        "granite",
        embedding_scale=read.positive("embedding_multiplier", 1.0),
        residual_scale=read.positive("residual_multiplier", 1.0),
        attention_scale=read.positive("attention_multiplier", 1.0),
        logit_scale=1 / read.positive("logits_scaling", 1.0),
        mlp_bias=read.flag("mlp_bias"),
        **hf_bias(read),
    )


def _from_gguf(read: Fields) -> ModelConfig:
    """Granite's files say by this that nothing is rotated; without a scale, as if they had none."""
    refuse_unless(read, **{"rope.scaling.finetuned": True})
    scales = {key: read.number(key, 0.0) for key in _TAKES}
    return gguf_config(
        read,
        "granite",
        takes=frozenset(_TAKES),
        embedding_scale=scales["embedding_scale"] or 1.0,
        residual_scale=scales["residual_scale"] or 1.0,
        attention_scale=scales["attention.scale"],
        logit_scale=1 / (scales["logit_scale"] or 1.0),
    )


GRANITE = Family(
    name="granite",
    title="Granite 3.0 to 3.3 (dense)",
    hf_class="GraniteForCausalLM",
    hf_type="granite",
    hf_config=_from_hf,
    hf_names=HF,
    gguf="granite",
    gguf_config=_from_gguf,
    gguf_names=GGUF_PAIRED,
)
