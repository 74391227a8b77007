"""Whatever stands in a file's settings, a config or a CheckpointError comes of it."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.model.errors import CheckpointError
from anychip.model.families import FAMILIES, config_from_gguf, config_from_hf
from families.checked_family import SIZES

NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 1 << 40, 1e308, 1e-308])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
OF_GGUF = {
    "block_count": 3,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 0,
    "attention.sliding_window_pattern": None,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
    "attention.scale": 0.0,
    "embedding_scale": 0.0,
    "residual_scale": 0.0,
    "logit_scale": 0.0,
    "rope.freq_base": 1e4,
    "rope.freq_base_swa": None,
    "rope.scaling.type": "none",
    "rope.scaling.finetuned": None,
    "vocab_size": 384,
}
DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2", "granite")
DENSE += ("smollm3", "phi3", "glm", "glm4")


@functools.cache
def of_folder(name):
    """The whole config.json of a small model."""
    import transformers

    network = FAMILIES[name].hf_class
    found = getattr(transformers, network).config_class(**SIZES).to_dict()
    return {**found, "architectures": [network]}


@pytest.mark.parametrize("name", DENSE)
def test_of_a_folder(name):
    sound = of_folder(name)
    config_from_hf(sound)

    @settings(max_examples=1500, deadline=None)
    @given(st.sampled_from(sorted([*sound, "rope_scaling", "sliding_window_pattern"])), VALUES)
    def holds(key, value):
        try:
            config_from_hf({**sound, key: value})
        except CheckpointError as error:
            assert str(error)

    holds()


@pytest.mark.parametrize("name", [n for n in DENSE if FAMILIES[n].gguf])
def test_of_a_gguf_file(name):
    arch = FAMILIES[name].gguf
    sound = {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in OF_GGUF.items()}
    config_from_gguf(sound)

    @settings(max_examples=1500, deadline=None)
    @given(st.sampled_from(sorted(sound)), VALUES)
    def holds(key, value):
        try:
            config_from_gguf({**sound, key: value})
        except CheckpointError as error:
            assert str(error)

    holds()


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("count", [1 << 40, -1])
def test_layers_are_counted_before_they_are_described(name, count):
    with pytest.raises(CheckpointError, match=f"layers is {count}"):
        config_from_hf({**of_folder(name), "num_hidden_layers": count, "layer_types": None})
    arch = FAMILIES[name].gguf
    if arch:
        of_file = {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in OF_GGUF.items()}
        with pytest.raises(CheckpointError, match=f"layers is {count}"):
            config_from_gguf({**of_file, f"{arch}.block_count": count})
