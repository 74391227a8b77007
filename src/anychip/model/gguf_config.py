"""What GGUF metadata say of a decoder. Keys: ggml's gguf.md and gguf-py's constants.

What only the tensors tell (tied, biases, dtype, rope factors) is filled in by `checkpoint.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.model.config import ModelConfig
from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported
from anychip.model.fields import Fields, head_size
from anychip.model.gguf import NEXT_LAYERS
from anychip.model.hf_rope import yarn_mscale
from anychip.model.layer_pattern import all_but_every, layer_count
from anychip.model.rope_config import RopeConfig

_NEUTRAL = {
    "expert_count": (0,),
    "expert_group_count": (0, 1),
    "attention.sliding_window": (0,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
}
"""Keys that change the network -> values at which they are harmless."""


def gguf_config(
    read: Fields, architecture: str, *, takes: frozenset[str] = frozenset(), **own: Any
) -> ModelConfig:
    """The sizes that every family spells alike. own: fields of ModelConfig as the family says.

    takes: keys that change the network and that the family reads; others are refused by name.
    """
    _refuse_features(read, takes)
    hidden, heads = read.integer("embedding_length"), read.integer("attention.head_count")
    key_length = read.prefix + "attention.key_length"
    fallback = head_size(hidden, heads, read.settings.get(key_length))
    head_dim = read.integer("attention.key_length", fallback)
    outside = Fields(read.settings, read.origin)
    read_here: dict[str, Any] = {
        "vocab_size": read.integer("vocab_size", _token_count(read.settings)),
        "hidden_size": hidden,
        "layers": gguf_layers(read),
        "heads": heads,
        "kv_heads": read.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "norm_eps": read.number("attention.layer_norm_rms_epsilon"),
        "context_length": read.integer("context_length"),
        "eos_ids": outside.token_ids("tokenizer.ggml.eos_token_id"),
        "bos_id": next(iter(outside.token_ids("tokenizer.ggml.bos_token_id")), None),
    }
    if "intermediate_size" not in own:
        read_here["intermediate_size"] = read.integer("feed_forward_length")
    if "ropes" not in own:
        _check_value_length(read, head_dim)
        read_here["ropes"] = (gguf_rope(read, head_dim),)
    return ModelConfig(architecture=architecture, **{**read_here, **own})


def gguf_layers(read: Fields) -> int:
    """How many layers there are before those, counted along, that predict further tokens.

    Raises CheckpointError.
    """
    blocks, further = layer_count(read, "block_count"), read.integer(NEXT_LAYERS, 0)
    if not 0 <= further < blocks:
        raise CheckpointError(
            f"'{read.prefix}{NEXT_LAYERS}' is {further}; of {blocks} layers 0 to {blocks - 1} may "
            "predict further tokens"
        )
    return blocks - further


def gguf_windows(read: Fields, *, period: int, window: int = 0) -> tuple[int, ...]:
    """Each layer's window, 0 where it sees all: every period-th, where the file has no pattern.

    window: where the file does not say.
    """
    window = read.integer("attention.sliding_window", window)
    layers, key = gguf_layers(read), "attention.sliding_window_pattern"
    local = read.settings.get(read.prefix + key)
    if not isinstance(local, list):
        local = all_but_every(read.integer(key, period), layers)
    if len(local) != layers:
        raise CheckpointError(f"'{read.prefix}{key}' tells of {len(local)} layers of {layers}")
    return tuple(window if is_local else 0 for is_local in local)


def gguf_rope(read: Fields, head_dim: int, *, interleaved: bool = False) -> RopeConfig:
    """The rotation of most families: none, linear or yarn; of a part of the head where said."""
    theta = read.number("rope.freq_base", 10000.0)
    rotary_dim = read.integer("rope.dimension_count", head_dim)
    kind = read.settings.get(f"{read.prefix}rope.scaling.type", "none")
    old = read.settings.get(f"{read.prefix}rope.scale_linear")
    factor = read.number("rope.scaling.factor", read.number("rope.scale_linear", 1.0))
    if kind == "linear" or (kind == "none" and old is not None and factor != 1.0):
        return RopeConfig(theta, rotary_dim, "linear", factor, interleaved=interleaved)
    if kind == "yarn":
        return RopeConfig(
            theta,
            rotary_dim,
            "yarn",
            factor,
            original_context=read.integer("rope.scaling.original_context_length"),
            magnitude=yarn_mscale(factor) * read.number("rope.scaling.attn_factor", 1.0),
            interleaved=interleaved,
        )
    if kind not in ("none", "longrope"):  # longrope's lists are tensors
        raise unsupported("rope scaling", kind, ("none", "linear", "yarn", "longrope"))
    return RopeConfig(theta, rotary_dim, interleaved=interleaved)


def gguf_window(read: Fields) -> int:
    """Positions that a token sees in layers with a window; 0: there are none."""
    return read.integer("attention.sliding_window", 0)


def _refuse_features(read: Fields, takes: frozenset[str]) -> None:
    for key, values in _NEUTRAL.items():
        value = read.settings.get(read.prefix + key, values[0])
        if key not in takes and value not in values:
            raise UnsupportedModel(f"'{read.prefix}{key}' = {value!r:.60} is not supported")


def _check_value_length(read: Fields, head_dim: int) -> None:
    value = read.integer("attention.value_length", head_dim)
    if value != head_dim:
        raise UnsupportedModel(
            f"'{read.prefix}attention.value_length' = {value} differs from the head size "
            f"{head_dim}, which is not supported"
        )


def _token_count(metadata: Mapping[str, Any]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, list) else None
