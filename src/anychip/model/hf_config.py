"""What config.json says of a decoder, in the spelling that most families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anychip.contract.formats import PLAIN_FORMATS
from anychip.model.config import LayerConfig, ModelConfig
from anychip.model.errors import UnsupportedModel, unsupported
from anychip.model.fields import Fields, head_size
from anychip.model.hf_rope import hf_rope
from anychip.model.layer_pattern import layer_count

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
"""Names of transformers -> of `mlp_block`."""

FULL, SLIDING = "full_attention", "sliding_attention"


def hf_config(read: Fields, architecture: str, **own: Any) -> ModelConfig:
    """The sizes that every family spells alike; own: fields of ModelConfig as the family says.

    Raises CheckpointError, UnsupportedModel.
    """
    hidden, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    head_dim = read.integer("head_dim", head_size(hidden, heads, read.settings.get("head_dim")))
    read_here: dict[str, Any] = {
        "hidden_size": hidden,
        "heads": heads,
        "kv_heads": read.integer("num_key_value_heads", heads),
        "head_dim": head_dim,
        "vocab_size": read.integer("vocab_size"),
        "layers": layer_count(read, "num_hidden_layers"),
        "context_length": read.integer("max_position_embeddings"),
        "tie_embeddings": read.flag("tie_word_embeddings"),
        "dtype": _plain_dtype(read),
        "eos_ids": read.token_ids("eos_token_id"),
        "bos_id": next(iter(read.token_ids("bos_token_id")), None),
    }
    defaults: dict[str, Callable[[], Any]] = {
        "ropes": lambda: (hf_rope(read, head_dim),),
        "intermediate_size": lambda: read.integer("intermediate_size"),
        "activation": lambda: hf_activation(read),
        "norm_eps": lambda: read.number("rms_norm_eps", 1e-6),
    }
    read_here |= {name: found() for name, found in defaults.items() if name not in own}
    return ModelConfig(architecture=architecture, **{**read_here, **own})


def hf_activation(read: Fields, key: str = "hidden_act", default: str = "silu") -> str:
    """The activation of the MLP."""
    name = read.text(key, default)
    if name not in ACTIVATIONS:
        raise unsupported("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


def hf_windows(read: Fields, kinds: tuple[str, ...] | None = None) -> tuple[int, ...]:
    """Each layer's window, 0 where it sees all.

    kinds: of the layers where the file does not say (`layer_types`); None: all have the window.
    """
    layers = layer_count(read, "num_hidden_layers")
    if not read.has("sliding_window") or not read.flag("use_sliding_window", True):
        return (0,) * layers
    window = read.integer("sliding_window")
    said = read.texts("layer_types") or kinds or (SLIDING,) * layers
    unknown = sorted(set(said) - {FULL, SLIDING})
    if unknown:
        raise unsupported("layer type", unknown[0], (FULL, SLIDING))
    return tuple(window if kind == SLIDING else 0 for kind in said)


def late_windows(read: Fields) -> tuple[int, ...]:
    """Qwen's: where asked for, the layers from max_window_layers on have the window."""
    layers, first = layer_count(read, "num_hidden_layers"), read.integer("max_window_layers", 28)
    if not read.flag("use_sliding_window"):
        return (0,) * layers
    return hf_windows(read, tuple(SLIDING if i >= first else FULL for i in range(layers)))


def hf_bias(read: Fields) -> dict[str, bool]:
    """Biases of query, key, value and of the output projection, where one setting is for all."""
    bias = read.flag("attention_bias")
    return {"attention_bias": bias, "output_bias": bias}


def windowed_layers(windows: tuple[int, ...]) -> tuple[LayerConfig, ...]:
    """Layers that differ in their window alone; none where no layer has one."""
    return tuple(LayerConfig(window=w) for w in windows) if any(windows) else ()


def refuse_unless(read: Fields, **neutral: Any) -> None:
    """Refuse settings that change the network in a way that is not served, by name.

    neutral: setting -> the value at which it is harmless; a missing one is.
    """
    for key, harmless in neutral.items():
        value = read.settings.get(read.prefix + key)
        if value is not None and value != harmless:
            raise UnsupportedModel(f"'{read.prefix}{key}' = {value!r:.60} is not supported")


def _plain_dtype(read: Fields) -> str:
    name = read.settings.get("dtype") or read.settings.get("torch_dtype")
    return str(name) if name in PLAIN_FORMATS else "float32"
