"""What files say of mixtures of experts, in the spelling that most families share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anychip.model.config import ExpertsConfig, LayerConfig, ModelConfig
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.fields import Fields
from anychip.model.layer_pattern import layer_count

GGUF_KEYS = frozenset({"expert_count"})
"""Keys that a family takes where it reads them by `gguf_experts`."""

_GATES = {"softmax": 1, "sigmoid": 2, "softmax_topk": 3}
"""Scorings -> llama.cpp's numbers of them; 0: the file does not say."""


def hf_experts(read: Fields, **own: Any) -> ExpertsConfig:
    """Of config.json. own: fields of ExpertsConfig as the family says.

    transformers 5 calls num_local_experts what some families published as num_experts.
    """
    count = "num_experts" if read.has("num_experts") else "num_local_experts"
    return ExpertsConfig(count=read.integer(count), used=read.integer("num_experts_per_tok"), **own)


def gguf_experts(read: Fields, *, renormalize: bool = False, **own: Any) -> ExpertsConfig:
    """Of GGUF metadata. renormalize: what the family does where the file does not say."""
    gate = read.integer("expert_gating_func", 0)
    if gate not in (0, _GATES[own.get("scoring", "softmax")]):
        raise UnsupportedModel(f"'{read.prefix}expert_gating_func' = {gate} is not supported")
    given: dict[str, Any] = {
        "count": read.integer("expert_count"),
        "used": read.integer("expert_used_count"),
        "renormalize": read.flag("expert_weights_norm", renormalize),
        "scale": read.number("expert_weights_scale", 1.0) or 1.0,
    }
    if "inner" not in own:
        given["inner"] = read.integer("expert_feed_forward_length")
    return ExpertsConfig(**{**given, **own})


def hf_sparse_layers(read: Fields) -> tuple[bool, ...]:
    """Qwen's: every decoder_sparse_step-th layer has experts, unless it is in mlp_only_layers."""
    step, layers = read.integer("decoder_sparse_step", 1), layer_count(read, "num_hidden_layers")
    if step < 1:
        raise CheckpointError(f"'decoder_sparse_step' is {step}; a positive number is needed")
    plain = frozenset(read.integers("mlp_only_layers"))
    return tuple(i not in plain and (i + 1) % step == 0 for i in range(layers))


def with_experts(config: ModelConfig, sparse: tuple[bool, ...] | None = None) -> ModelConfig:
    """The model whose layers have experts: all of them, or where `sparse` says so."""
    layers = config.layer_configs or (LayerConfig(),) * config.layers
    marks = sparse or (True,) * config.layers
    marked = (replace(c, experts=e) for c, e in zip(layers, marks, strict=True))
    return replace(config, layer_configs=tuple(marked))
