"""Gemma 1, 2 and 3 against transformers."""

from __future__ import annotations

import dataclasses
import json

import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import UnsupportedModel
from anychip.model.families import FAMILIES, config_from_hf
from families.checked_family import (
    BACKENDS,
    LIMIT,
    assert_on,
    assert_reference,
    error_with,
    make_model,
    save,
)

ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
SHARED = {"head_dim": 32, "tie_word_embeddings": True}
WINDOWED = {"sliding_window": 20, "query_pre_attn_scalar": 20, **SHARED}
MODELS = {
    "Gemma": {"num_hidden_layers": 2, "hidden_act": "gelu", **SHARED},
    "Gemma2": {
        "num_hidden_layers": 2,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 4.0,
        **WINDOWED,
    },
    "Gemma3": {"sliding_window_pattern": 3, "rope_parameters": ROPES, **WINDOWED},
}


def made(name, **settings):
    return make_model(name, **{**MODELS[name], **settings})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_equals_transformers(tmp_path, name, backend):
    model = made(name)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_on(model, tmp_path, backend)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Gemma", {"tie_word_embeddings": False, "attention_bias": True}),
        ("Gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
        ("Gemma2", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("Gemma3", {"final_logit_softcapping": 4.0, "sliding_window_pattern": 2}),
    ],
)
def test_variants_equal_transformers(tmp_path, name, settings):
    model = made(name)
    config = model.config.to_dict() | settings
    model = make_model(name, **{k: v for k, v in config.items() if v is not None})
    folder = save(model, tmp_path)
    if None in settings.values():  # as published files spell it; make_model leaves None out
        model = _without(model, folder, settings)
    assert_reference(model, folder)


def _without(model, folder, settings):
    """The same weights with settings that are null."""
    for key in settings:
        setattr(model.config, key, None)
    for layer in model.model.layers:
        layer.self_attn.attn_logit_softcapping = None
    model.config.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["attn_logit_softcapping"] is None
    return model


def changed_layers(folder, **change):
    layers = open_checkpoint(folder).config.layer_configs
    return tuple(dataclasses.replace(layer, **change) for layer in layers)


@pytest.mark.parametrize("name", MODELS)
def test_what_all_share_would_be_missed(tmp_path, name):
    model = made(name)
    save(model, tmp_path)
    names = FAMILIES[name.lower()].hf_names
    assert error_with(model, tmp_path) < LIMIT / 10
    assert error_with(model, tmp_path, embedding_scale=1.0) > 10 * LIMIT
    assert error_with(model, tmp_path, activation="silu") > 10 * LIMIT
    unshifted = dataclasses.replace(names, norm_plus=0.0)
    assert error_with(model, tmp_path, naming=unshifted) > 10 * LIMIT


@pytest.mark.parametrize("name", ["Gemma2", "Gemma3"])
def test_what_two_and_three_have_would_be_missed(tmp_path, name):
    model = made(name)
    save(model, tmp_path)
    assert error_with(model, tmp_path, attention_scale=0.0) > 10 * LIMIT
    assert error_with(model, tmp_path, post_norms=False) > 10 * LIMIT
    wider = changed_layers(tmp_path, window=0)
    assert error_with(model, tmp_path, layer_configs=wider) > 10 * LIMIT
    exchanged = FAMILIES[name.lower()].hf_names.called(
        mlp_norm="post_attention_layernorm", attention_post_norm="pre_feedforward_layernorm"
    )
    assert error_with(model, tmp_path, naming=exchanged) > 10 * LIMIT


def test_caps_would_be_missed(tmp_path):
    model = made("Gemma2")
    save(model, tmp_path)
    assert error_with(model, tmp_path, attention_softcap=0.0) > 10 * LIMIT
    assert error_with(model, tmp_path, logit_softcap=0.0) > 10 * LIMIT


def test_ropes_and_norms_of_three_would_be_missed(tmp_path):
    model = made("Gemma3")
    main, local = open_checkpoint(save(model, tmp_path)).config.ropes
    assert (main.theta, main.factor, local.theta, local.kind) == (1e6, 8.0, 1e4, "default")
    assert error_with(model, tmp_path, qk_norm="none") > 10 * LIMIT
    assert error_with(model, tmp_path, ropes=(local, local)) > 10 * LIMIT
    assert error_with(model, tmp_path, ropes=(main, main)) > 10 * LIMIT
    one_rope = changed_layers(tmp_path, rope=0)
    assert error_with(model, tmp_path, layer_configs=one_rope) > 10 * LIMIT


def test_three_as_transformers_4_spelled_it(tmp_path):
    folder = save(made("Gemma3"), tmp_path)
    new = json.loads((folder / "config.json").read_text())
    old = {k: v for k, v in new.items() if k not in ("rope_parameters", "layer_types")}
    old |= {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 3,
    }
    assert config_from_hf(old) == config_from_hf(new)
    assert config_from_hf({**old, "sliding_window_pattern": 2}) != config_from_hf(new)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("Gemma", {"hidden_act": "silu"}, "'hidden_act' = 'silu'"),
        ("Gemma", {"hidden_activation": "relu"}, "'hidden_activation' = 'relu'"),
        ("Gemma2", {"hidden_activation": "relu"}, "activation 'relu'"),
        ("Gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("Gemma3", {"layer_types": ["chunked_attention"] * 3}, "chunked_attention"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, name, change, message):
    settings = made(name).config.to_dict() | {"architectures": [f"{name}ForCausalLM"]}
    config_from_hf(settings)
    with pytest.raises(UnsupportedModel, match=message):
        config_from_hf({**settings, **change})
