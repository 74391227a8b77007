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
STRANGE = (None, True, "", "x", [], [1], {}, {"a": 1}, 0, -1, 3, 1 << 40, 0.0, -0.5, 1e308, 1e-308)
STRANGE += (float("nan"), float("inf"), [None], [[1]])
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
OF_EXPERTS = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 48,
    "expert_shared_count": 1,
    "expert_weights_scale": 1.0,
    "expert_weights_norm": True,
    "expert_gating_func": None,
    "leading_dense_block_count": 1,
}
OF_LATENT = {
    "expert_group_count": 4,
    "expert_group_used_count": 2,
    "attention.kv_lora_rank": 32,
    "attention.q_lora_rank": 24,
    "attention.key_length": 40,
    "attention.value_length": 32,
    "attention.key_length_mla": 24,
    "attention.value_length_mla": 24,
    "rope.dimension_count": 8,
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 128,
    "rope.scaling.yarn_log_multiplier": 0.1,
}
OF_STATES = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 128,
    "full_attention_interval": 4,
    "attention.recurrent_layers": None,
    "nextn_predict_layers": 0,
}
DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2", "granite")
DENSE += ("smollm3", "phi3", "glm", "glm4")
SPARSE = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek2", "deepseek3", "qwen3_next")
NAMES = DENSE + SPARSE
IN_FILES = [n for n in NAMES if FAMILIES[n].gguf_config]
MORE = {
    "qwen3_next": {"num_experts": 0, "head_dim": 16},
    "deepseek2": {"num_experts_per_tok": 2},
}
"""Settings of a folder, where those that a family has by default are not served."""


@functools.cache
def of_folder(name):
    """The whole config.json of a small model."""
    import transformers

    network = FAMILIES[name].hf_class
    found = getattr(transformers, network).config_class(**SIZES, **MORE.get(name, {})).to_dict()
    return {**found, "architectures": [network]}


def of_file(name):
    """The metadata of a small model."""
    arch = FAMILIES[name].gguf
    found = OF_GGUF | (OF_EXPERTS if name in SPARSE else {})
    found |= {"deepseek2": OF_LATENT, "qwen3_next": OF_STATES}.get(name, {})
    return {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in found.items()}


@pytest.mark.parametrize("name", DENSE)
def test_of_a_folder(name):
    sound = of_folder(name)
    config_from_hf(sound)

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(sorted([*sound, "rope_scaling", "sliding_window_pattern"])), VALUES)
    def holds(key, value):
        try:
            config_from_hf({**sound, key: value})
        except CheckpointError as error:
            assert str(error)

    holds()


@pytest.mark.parametrize("name", [n for n in DENSE if n in IN_FILES])
def test_of_a_gguf_file(name):
    sound = of_file(name)
    config_from_gguf(sound)

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(sorted(sound)), VALUES)
    def holds(key, value):
        try:
            config_from_gguf({**sound, key: value})
        except CheckpointError as error:
            assert str(error)

    holds()


@pytest.mark.parametrize("name", SPARSE)
def test_strange_values_of_every_setting(name):
    read = [(config_from_hf, of_folder(name), ("rope_scaling", "layer_types"))]
    read += [(config_from_gguf, of_file(name), ())] if name in IN_FILES else []
    for parse, sound, more in read:
        parse(sound)
        for key in (*sound, *more):
            for value in STRANGE:
                try:
                    parse({**sound, key: value})
                except CheckpointError as error:
                    assert str(error), key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1 << 40, -1])
def test_layers_are_counted_before_they_are_described(name, count):
    with pytest.raises(CheckpointError, match=f"layers is {count}"):
        config_from_hf({**of_folder(name), "num_hidden_layers": count, "layer_types": None})
    if name in IN_FILES:
        with pytest.raises(CheckpointError, match=f"layers is {count}"):
            config_from_gguf({**of_file(name), f"{FAMILIES[name].gguf}.block_count": count})
