"""GGUF files of every dense family give the logits of the model that they were made from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.families import config_from_gguf
from anychip.model.gguf import read_gguf_metadata
from families.checked_family import (
    LIMIT,
    assert_on,
    assert_reference,
    error_of,
    make_model,
    prompts,
    relative,
    save,
    true_logits,
)
from families.gguf_copies import CONVERSIONS, write_copy

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
GEMMA = {"head_dim": 32, "tie_word_embeddings": True}
MODELS = {
    "Llama": {"attention_bias": True, "mlp_bias": True, "head_dim": 32},
    "Mistral": {"sliding_window": None, "head_dim": 32},
    "Qwen2": {"rope_parameters": {"rope_theta": 1e6, **YARN}, "tie_word_embeddings": True},
    "Qwen3": {"head_dim": 32},
    "Gemma": {"hidden_act": "gelu", **GEMMA},
    "Gemma2": {
        "sliding_window": 20,
        "query_pre_attn_scalar": 32,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 4.0,
        **GEMMA,
    },
    "Gemma3": {
        "num_hidden_layers": 7,
        "sliding_window": 20,
        "query_pre_attn_scalar": 32,
        "rope_parameters": ROPES,
        **GEMMA,
    },
    "Olmo2": {},
    "Granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.1,
        "logits_scaling": 5.0,
    },
    "SmolLM3": {"num_hidden_layers": 4, "tie_word_embeddings": True},
    "Phi3": {"sliding_window": 40},
    "Glm": {"head_dim": 16, "attention_bias": True, "rms_norm_eps": 1e-5},
    "Glm4": {"head_dim": 32},
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(6)],
    "long_factor": [1.5 + 0.5 * i for i in range(6)],
    "partial_rotary_factor": 0.75,
}


def made(name, **settings):
    return make_model(name, **{**MODELS[name], **settings})


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_the_model(tmp_path, name):
    model = made(name)
    path = write_copy(model, tmp_path / "copy.gguf", CONVERSIONS[name])
    assert error_of(path, model) < LIMIT / 10
    folder = open_checkpoint(save(model, tmp_path / "folder")).config
    ours = open_checkpoint(path).config
    assert ours.architecture == ("llama" if name == "Mistral" else folder.architecture)
    assert (ours.eos_ids, ours.vocab_size) == (folder.eos_ids, folder.vocab_size)


@pytest.mark.parametrize("name", [n for n, c in CONVERSIONS.items() if c.paired])
def test_rows_in_another_order_would_be_missed(tmp_path, name):
    model, other = made(name), dataclasses.replace(CONVERSIONS[name], paired=False)
    assert error_of(write_copy(model, tmp_path / "wrong.gguf", other), model) > 10 * LIMIT


@pytest.mark.parametrize("name", ["Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3", "Olmo2", "Glm4"])
def test_rows_that_should_stay_would_be_missed(tmp_path, name):
    model, other = made(name), dataclasses.replace(CONVERSIONS[name], paired=True)
    assert error_of(write_copy(model, tmp_path / "wrong.gguf", other), model) > 10 * LIMIT


@pytest.mark.parametrize("name", ["Gemma", "Gemma2", "Gemma3"])
def test_norms_without_their_one_would_be_missed(tmp_path, name):
    model, other = made(name), dataclasses.replace(CONVERSIONS[name], plus=0.0)
    assert error_of(write_copy(model, tmp_path / "wrong.gguf", other), model) > 10 * LIMIT


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("Gemma2", {"attn_logit_softcapping": 9.0}),
        ("Gemma2", {"final_logit_softcapping": 9.0}),
        ("Gemma2", {"attention.sliding_window": 30}),
        ("Gemma2", {"attention.sliding_window_pattern": 3}),
        ("Gemma3", {"attention.sliding_window": None}),
        ("Gemma3", {"rope.freq_base": 1e4}),
        ("Gemma3", {"rope.freq_base_swa": 1e6}),
        ("Gemma3", {"rope.scaling.factor": 2.0}),
        ("Gemma3", {"attention.sliding_window_pattern": [True] * 7}),
        ("Granite", {"attention.scale": None}),
        ("Granite", {"embedding_scale": None}),
        ("Granite", {"residual_scale": None}),
        ("Granite", {"logit_scale": 1.0}),
        ("Qwen2", {"rope.scaling.factor": 2.0}),
        ("SmolLM3", {"rope.freq_base": 1e4}),
        ("Phi3", {"attention.sliding_window": 30}),
        ("Glm", {"rope.dimension_count": 16}),
        ("Glm4", {"rope.dimension_count": 32}),
    ],
)
def test_a_setting_is_read(tmp_path, name, setting):
    model = made(name)
    path = write_copy(model, tmp_path / "wrong.gguf", CONVERSIONS[name], **setting)
    assert error_of(path, model) > 10 * LIMIT


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "scalar"), [("Gemma2", 46, 4608, 144), ("Gemma3", 62, 5376, 168)]
)
def test_scores_of_27b_are_scaled_by_the_hidden_size(tmp_path, name, layers, hidden, scalar):
    """Its query_pre_attn_scalar is no setting of GGUF."""
    arch = CONVERSIONS[name].arch
    path = write_copy(made(name), tmp_path / "copy.gguf", CONVERSIONS[name])
    small = read_gguf_metadata(path)
    sizes = {f"{arch}.embedding_length": hidden, f"{arch}.attention.head_count": 32}
    large = config_from_gguf({**small, **sizes, f"{arch}.block_count": layers})
    assert large.score_scale == pytest.approx(scalar**-0.5)
    assert config_from_gguf({**small, **sizes}).score_scale == pytest.approx(32**-0.5)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("Granite", {"rope.scaling.finetuned": False}, "finetuned' = False"),
        ("Olmo2", {"attention.sliding_window": 4096}, "sliding_window' = 4096"),
        ("SmolLM3", {"attention.sliding_window": 64}, "sliding_window' = 64"),
        ("Qwen3", {"attention.scale": 0.5}, "attention.scale' = 0.5"),
        ("Gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping' = 50.0"),
        ("Gemma2", {"attention.sliding_window_pattern": [True]}, "tells of 1 layers of 3"),
        ("Gemma2", {"attention.sliding_window_pattern": 0}, "every 0th layer"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, name, setting, message):
    path = write_copy(made(name), tmp_path / "copy.gguf", CONVERSIONS[name], **setting)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


def test_the_engine_answers_from_the_file(tmp_path):
    pattern = {"attention.sliding_window_pattern": 3}
    model = made("Gemma3", num_hidden_layers=3, sliding_window_pattern=3)
    path = write_copy(model, tmp_path / "copy.gguf", CONVERSIONS["Gemma3"], **pattern)
    assert_reference(model, path)
    assert_on(model, path, "cpu")


def longrope(original):
    return make_model(
        "Phi3",
        rope_parameters=LONGROPE,
        original_max_position_embeddings=original,
        tie_word_embeddings=True,
        num_hidden_layers=2,
    )


@pytest.mark.parametrize("original", [256, 16])
def test_the_lists_of_longrope_are_tensors(tmp_path, original):
    """60 tokens lie within the original context, or beyond it."""
    model = longrope(original)
    path = write_copy(model, tmp_path / "copy.gguf", CONVERSIONS["Phi3"])
    assert error_of(path, model) < LIMIT / 10


@pytest.mark.parametrize(
    "setting",
    [{"rope.scaling.original_context_length": 16}, {"rope.scaling.attn_factor": 1.0}],
    ids=str,
)
def test_what_is_told_of_longrope_is_read(tmp_path, setting):
    model = longrope(256)
    path = write_copy(model, tmp_path / "wrong.gguf", CONVERSIONS["Phi3"], **setting)
    assert error_of(path, model) > 10 * LIMIT


def _none_of_qkv(name, array):
    return {} if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj") else {name: array}


def _joined(model):
    held = {n: p.detach().numpy() for n, p in model.named_parameters()}
    return {
        f"blk.{i}.attn_qkv.{end}": np.concatenate(
            [held[f"model.layers.{i}.self_attn.{x}_proj.{end}"] for x in "qkv"]
        )
        for i in range(model.config.num_hidden_layers)
        for end in ("weight", "bias")
    }


def test_glm_may_have_query_key_and_value_in_one_tensor(tmp_path):
    """As it was published with code of its own, before transformers knew it."""
    model = made("Glm")
    fused = dataclasses.replace(CONVERSIONS["Glm"], split=_none_of_qkv, more=_joined)
    assert error_of(write_copy(model, tmp_path / "copy.gguf", fused), model) < LIMIT / 10


WHAT_TRANSFORMERS_READS = {
    "Llama": {"head_dim": 32},
    "Mistral": {"head_dim": 32, "sliding_window": None},
    "Qwen2": {},
    "Qwen3": {"head_dim": 128},
    "Gemma2": {"head_dim": 256, "sliding_window": 20, "tie_word_embeddings": True},
    "Gemma3": {
        "head_dim": 256,
        "sliding_window": 20,
        "tie_word_embeddings": True,
        "num_hidden_layers": 6,
    },
}


@pytest.mark.parametrize("name", WHAT_TRANSFORMERS_READS)
def test_transformers_reads_the_same_model_from_the_file(tmp_path, name):
    """So the files are what others take them for. It reads no biases, caps or scaled ropes."""
    import transformers

    model = make_model(name, **WHAT_TRANSFORMERS_READS[name])
    path = write_copy(model, tmp_path / "copy.gguf", CONVERSIONS[name])
    load = transformers.AutoModelForCausalLM.from_pretrained
    read = load(tmp_path, gguf_file=path.name, attn_implementation="eager", dtype="float32")
    ids = prompts()[3]
    assert relative(true_logits(read, ids), true_logits(model, ids)) < LIMIT / 100
    assert error_of(path, read) < LIMIT / 10
