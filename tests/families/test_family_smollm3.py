"""SmolLM3 against transformers."""

from __future__ import annotations

import dataclasses

import pytest

from anychip.model.checkpoint import open_checkpoint
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

WINDOW = {"use_sliding_window": True, "sliding_window": 20}


def made(**settings):
    return make_model("SmolLM3", **{"num_hidden_layers": 4, **settings})


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_transformers(tmp_path, backend):
    model = made(tie_word_embeddings=True, **WINDOW)
    config = open_checkpoint(save(model, tmp_path)).config
    assert [(c.rope, c.window) for c in config.layer_configs] == [(0, 0)] * 3 + [(None, 20)]
    assert_reference(model, tmp_path)
    assert_on(model, tmp_path, backend)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_hidden_layers": 3, "no_rope_layers": [0, 1, 0], "attention_bias": True},
        {"no_rope_layer_interval": 2, "mlp_bias": True},
        {"layer_types": ["sliding_attention", "full_attention"] * 2, **WINDOW},
        {"use_sliding_window": False, "sliding_window": 20},
    ],
)
def test_variants_equal_transformers(tmp_path, settings):
    model = made(**settings)
    save(model, tmp_path)
    assert_reference(model, tmp_path)


def test_what_is_particular_would_be_missed(tmp_path):
    model = made(**WINDOW)
    layers = open_checkpoint(save(model, tmp_path)).config.layer_configs
    rotated = tuple(dataclasses.replace(c, rope=0) for c in layers)
    unrotated = (dataclasses.replace(layers[0], rope=None), *layers[1:])
    wider = tuple(dataclasses.replace(c, window=0) for c in layers)
    assert error_with(model, tmp_path) < LIMIT / 10
    for wrong in (rotated, unrotated, wider):
        assert error_with(model, tmp_path, layer_configs=wrong) > 10 * LIMIT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"no_rope_layers": [1, 0]}, "tells of 2 layers of 4"),
        ({"no_rope_layers": None, "no_rope_layer_interval": 0}, "every 0th layer"),
        ({"no_rope_layers": "all"}, "not a list of numbers"),
    ],
)
def test_layers_that_are_not_described_are_refused(change, message):
    settings = made().config.to_dict() | {"architectures": ["SmolLM3ForCausalLM"]}
    with pytest.raises(CheckpointError, match=message):
        config_from_hf({**settings, **change})
