"""ModelConfig from config.json of transformers 4 and 5 and from GGUF; what is refused by name."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_models as tiny
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.families import config_from_gguf, config_from_hf

HF = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": [2, 0],
    "rope_theta": 5e5,
    "torch_dtype": "bfloat16",
}
GGUF = {
    "general.architecture": "llama",
    "llama.vocab_size": 384,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 512,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 16,
    "llama.rope.freq_base": 5e5,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.bos_token_id": 1,
}

ORIGINAL = "original_max_position_embeddings"
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 64}
LONG = {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


def test_transformers_4_config():
    config = config_from_hf({**HF, "rope_scaling": {"type": "linear", "factor": 2.0}})
    assert (config.architecture, config.head_dim, config.kv_heads) == ("llama", 16, 2)
    assert (config.eos_ids, config.bos_id, config.dtype) == ((2, 0), 1, "bfloat16")
    assert config.tie_embeddings and not config.attention_bias
    assert (config.rope.kind, config.rope.factor, config.rope.theta) == ("linear", 2.0, 5e5)


def test_transformers_5_config():
    rope = {**tiny.LLAMA3, "rope_theta": 2e5}
    config = config_from_hf({**HF, "rope_parameters": rope, "dtype": "float16"})
    assert (config.rope.kind, config.rope.original_context) == ("llama3", 128)
    assert (config.rope.theta, config.dtype) == (2e5, "float16")


@pytest.mark.parametrize("scaling", [None, tiny.LINEAR])
def test_gguf_and_folder_of_one_model_have_one_config(tmp_path, scaling):
    folder = open_checkpoint(tiny.make_hf_folder(tmp_path, rope_scaling=scaling)).config
    gguf = open_checkpoint(tiny.make_gguf(tmp_path, rope_scaling=scaling)).config
    assert dataclasses.replace(gguf, norm_eps=folder.norm_eps) == folder
    assert gguf.norm_eps == pytest.approx(1e-5)


def test_defaults():
    short = {k: v for k, v in HF.items() if k not in ("num_key_value_heads", "rope_theta")}
    short |= {"eos_token_id": None, "bos_token_id": None, "torch_dtype": "int8"}
    config = config_from_hf(short)
    assert (config.kv_heads, config.rope.theta) == (4, 10000.0)
    assert (config.eos_ids, config.bos_id, config.dtype) == ((), None, "float32")
    without = {k: v for k, v in GGUF.items() if k != "llama.vocab_size"}
    assert config_from_gguf({**without, "tokenizer.ggml.tokens": ["a"] * 9}).vocab_size == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM.*LlamaForCausalLM"),
        ({"architectures": None, "model_type": None}, "architecture 'None'"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported; supported: silu"),
        ({"sliding_window": 128}, "'sliding_window' = 128 is not supported"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "'spiral'.*default, linear, dynamic, yarn"),
        ({"rope_parameters": {"full": {"rope_type": "default"}}}, "differ by layer"),
        ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor' = 0.5"),
    ],
)
def test_what_is_not_supported_is_named(change, message):
    with pytest.raises(UnsupportedModel, match=message):
        config_from_hf({**HF, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 63}, "63 does not divide into 4 heads"),
        ({"num_attention_heads": 0}, "into 0 heads"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot be shared by 3"),
        ({"num_key_value_heads": 0}, "kv_heads is 0"),
        ({"num_hidden_layers": 1 << 40}, "layers is"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"vocab_size": "many"}, "'vocab_size' is 'many', not an integer"),
        ({"vocab_size": True}, "'vocab_size' is True, not an integer"),
        ({"intermediate_size": None}, "has no 'intermediate_size'"),
        ({"rms_norm_eps": float("nan")}, "'rms_norm_eps' is nan"),
        ({"rms_norm_eps": 7}, "epsilon is 7"),
        ({"tie_word_embeddings": "yes"}, "not true or false"),
        ({"head_dim": 15}, "even number"),
        ({"rope_theta": 0}, "rope theta is 0"),
        ({"eos_token_id": 384}, "384 is outside the vocabulary"),
        ({"eos_token_id": "</s>"}, "not a token id"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "rope factor is 0"),
        ({"rope_scaling": {**tiny.LLAMA3, "high_freq_factor": 1.0}}, "above low_freq_factor"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "no 'low_freq_factor'"),
        ({"rms_norm_eps": 10**400}, "'rms_norm_eps' is 1000"),
        ({"head_dim": 10**400}, "at most 16384 are possible"),
        ({"max_position_embeddings": 10**400, "rope_scaling": YARN}, "1 to 67108864 are"),
        ({"rope_theta": 1e308}, r"rope theta is 1e\+308; 1e-30 to 1e\+30 are possible"),
        ({"rope_scaling": {"partial_rotary_factor": 1e308}}, "above 0 and up to 1 are possible"),
        ({"rope_scaling": {**YARN, ORIGINAL: 0}}, "is 0; 2 to 67108864 are possible"),
        ({"rope_scaling": {**LONG, ORIGINAL: 1}}, "is 1; 2 to 67108864 are possible"),
        ({"rope_scaling": {**LONG, ORIGINAL: -5}}, "is -5; 2 to 67108864 are possible"),
        ({"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": -9.0}}, "a magnitude of -"),
    ],
)
def test_what_contradicts_itself_is_named(change, message):
    with pytest.raises(CheckpointError, match=message):
        config_from_hf({**HF, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "'mamba' is not supported; supported: llama"),
        ({"llama.expert_count": 8}, "no 'llama.expert_used_count'"),
        ({"llama.attention.sliding_window": 64}, "sliding_window' = 64"),
        ({"llama.attention.value_length": 8}, "value_length' = 8 differs"),
        ({"llama.rope.dimension_count": 18}, "rotates 18 elements of a head of 16"),
        ({"llama.rope.scaling.type": "spiral"}, "'spiral'"),
        ({"llama.attention.head_count": [4, 4]}, "not an integer"),
        ({"llama.context_length": None}, "no 'llama.context_length'"),
    ],
)
def test_gguf_refusals(change, message):
    with pytest.raises(CheckpointError, match=message):
        config_from_gguf({**GGUF, **change})


def test_gguf_linear_scaling_old_and_new():
    new = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    for change in (new, {"llama.rope.scale_linear": 4.0}):
        rope = config_from_gguf({**GGUF, **change}).rope
        assert (rope.kind, rope.factor) == ("linear", 4.0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted([*HF, "rope_scaling", "head_dim"])), VALUES)
def test_any_value_anywhere_gives_a_config_or_a_checkpoint_error(key, value):
    try:
        config_from_hf({**HF, key: value})
    except CheckpointError as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted([*GGUF, "llama.rope.scaling.type"])), VALUES)
def test_any_gguf_value_gives_a_config_or_a_checkpoint_error(key, value):
    try:
        config_from_gguf({**GGUF, key: value})
    except CheckpointError as error:
        assert str(error)
