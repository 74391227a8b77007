"""Qwen3 against transformers."""

from __future__ import annotations

import dataclasses

import pytest

from anychip.model.checkpoint import open_checkpoint
from families.checked_family import (
    BACKENDS,
    LIMIT,
    assert_family,
    assert_on,
    assert_reference,
    error_with,
    make_model,
    prompts,
    save,
)

WINDOW = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_transformers(tmp_path, backend):
    model = make_model("Qwen3", head_dim=32, num_hidden_layers=2)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_on(model, tmp_path, backend)


def test_with_biases_a_window_and_yarn(tmp_path):
    settings = {"attention_bias": True, "tie_word_embeddings": True, **WINDOW}
    rope = {"rope_theta": 1e6, **YARN}
    model = make_model("Qwen3", head_dim=32, rope_parameters=rope, **settings)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path, asked=prompts()[3:4])
    windows = [layer.window for layer in open_checkpoint(tmp_path).config.layer_configs]
    assert windows == [0, 20, 20]


def test_what_is_particular_would_be_missed(tmp_path):
    model = make_model("Qwen3", head_dim=32, attention_bias=True, **WINDOW)
    config = open_checkpoint(save(model, tmp_path)).config
    layers = tuple(dataclasses.replace(c, window=0) for c in config.layer_configs)
    assert error_with(model, tmp_path) < LIMIT / 10
    assert error_with(model, tmp_path, qk_norm="none") > 10 * LIMIT
    assert error_with(model, tmp_path, attention_bias=False) > 10 * LIMIT
    assert error_with(model, tmp_path, output_bias=False) > 10 * LIMIT
    assert error_with(model, tmp_path, layer_configs=layers) > 10 * LIMIT
