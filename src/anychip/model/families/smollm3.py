"""SmolLM 3: Llama whose every fourth layer does not rotate, and may have a window."""

from __future__ import annotations

from anychip.model.config import LayerConfig, ModelConfig
from anychip.model.errors import CheckpointError
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config, gguf_layers
from anychip.model.hf_config import FULL, SLIDING, hf_bias, hf_config, hf_windows, refuse_unless
from anychip.model.layer_pattern import all_but_every, layer_count
from anychip.model.naming import GGUF_PAIRED, HF

_PERIOD = 4


def _from_hf(read: Fields) -> ModelConfig:
    refuse_unless(read, partial_rotary_factor=1.0)
    read = read.defaulting(tie_word_embeddings=True, rope_theta=2e6, use_sliding_window=False)
    rotated = _rotated(read)
    windows = hf_windows(read, tuple(FULL if r else SLIDING for r in rotated))
    return hf_config(
        read,
        "smollm3",
        layer_configs=_layers(rotated, windows),
        mlp_bias=read.flag("mlp_bias"),
        **hf_bias(read),
    )


def _rotated(read: Fields) -> tuple[bool, ...]:
    """Which layers rotate: a list whose name says the opposite of its numbers, or a period."""
    layers = layer_count(read, "num_hidden_layers")
    if not read.has("no_rope_layers"):
        return all_but_every(read.integer("no_rope_layer_interval", _PERIOD), layers)
    said = read.numbers("no_rope_layers")[:layers]
    if len(said) < layers:
        raise CheckpointError(f"'no_rope_layers' tells of {len(said)} layers of {layers}")
    return tuple(bool(number) for number in said)


def _layers(rotated: tuple[bool, ...], windows: tuple[int, ...]) -> tuple[LayerConfig, ...]:
    pairs = zip(rotated, windows, strict=True)
    return tuple(LayerConfig(window=window, rope=0 if r else None) for r, window in pairs)


def _from_gguf(read: Fields) -> ModelConfig:
    rotated = all_but_every(_PERIOD, gguf_layers(read))
    return gguf_config(read, "smollm3", layer_configs=_layers(rotated, (0,) * len(rotated)))


SMOLLM3 = Family(
    name="smollm3",
    title="SmolLM3",
    hf_class="SmolLM3ForCausalLM",
    hf_type="smollm3",
    hf_config=_from_hf,
    hf_names=HF,
    gguf="smollm3",
    gguf_config=_from_gguf,
    gguf_names=GGUF_PAIRED,
)
