"""Granite against transformers."""

from __future__ import annotations

import pytest

import tiny_models
from anychip.model.errors import CheckpointError
from anychip.model.families import config_from_hf
from families.checked_family import (
    BACKENDS,
    LIMIT,
    assert_on,
    assert_reference,
    error_with,
    make_model,
    save,
)

MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.1,
    "logits_scaling": 5.0,
}


def made(**settings):
    return make_model("Granite", num_hidden_layers=2, **{**MULTIPLIERS, **settings})


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_transformers(tmp_path, backend):
    model = made(attention_bias=True, mlp_bias=True)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_on(model, tmp_path, backend)


def test_tied_with_a_scaled_rope(tmp_path):
    rope = {"rope_theta": 1e4, **tiny_models.LLAMA3}
    model = made(tie_word_embeddings=True, rope_parameters=rope)
    save(model, tmp_path)
    assert_reference(model, tmp_path)


@pytest.mark.parametrize(
    "scale", ["embedding_scale", "residual_scale", "attention_scale", "logit_scale"]
)
def test_a_multiplier_would_be_missed(tmp_path, scale):
    model = made()
    save(model, tmp_path)
    assert error_with(model, tmp_path) < LIMIT / 10
    assert error_with(model, tmp_path, **{scale: 1.0}) > 10 * LIMIT


@pytest.mark.parametrize("key", MULTIPLIERS)
def test_a_multiplier_that_is_none_is_refused(key):
    settings = made().config.to_dict() | {"architectures": ["GraniteForCausalLM"], key: 0.0}
    with pytest.raises(CheckpointError, match=f"'{key}' is 0.0, not a positive number"):
        config_from_hf(settings)
