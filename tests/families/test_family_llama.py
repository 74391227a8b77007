"""Llama, Mistral and Qwen2 against transformers."""

from __future__ import annotations

import dataclasses

import pytest

import tiny_models
from anychip.model.checkpoint import open_checkpoint
from anychip.run.reference import reference_logits
from families.checked_family import (
    LIMIT,
    assert_family,
    assert_reference,
    make_model,
    prompts,
    relative,
    save,
    true_logits,
)

MODELS = {
    "llama": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral-window": ("Mistral", {"sliding_window": 24, "head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": None, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ),
}
ROPES = {
    "linear": tiny_models.LINEAR,
    "llama3": tiny_models.LLAMA3,
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
        "beta_fast": 16.0,
        "truncate": False,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_transformers(tmp_path, name):
    family, settings = MODELS[name]
    model = make_model(family, **settings)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path)


@pytest.mark.parametrize("kind", ROPES)
def test_every_kind_of_rope_equals_transformers(tmp_path, kind):
    rope = {"rope_theta": 10000.0, **ROPES[kind]}
    model = make_model("Qwen2", rope_parameters=rope)
    save(model, tmp_path)
    assert_reference(model, tmp_path)


@pytest.mark.parametrize("change", [{"window": 25}, {"window": 0}])
def test_a_wrong_window_would_be_seen(tmp_path, change):
    model = make_model("Mistral", sliding_window=24)
    checkpoint = open_checkpoint(save(model, tmp_path))
    layers = tuple(dataclasses.replace(c, **change) for c in checkpoint.config.layer_configs)
    wrong = dataclasses.replace(checkpoint.config, layer_configs=layers)
    ids = prompts()[3]
    got = reference_logits(checkpoint, wrong, ids)
    checkpoint.close()
    assert relative(got, true_logits(model, ids)) > 10 * LIMIT
