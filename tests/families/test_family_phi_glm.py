"""Phi-3 and GLM-4 against transformers."""

from __future__ import annotations

import dataclasses
import json

import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import UnsupportedModel
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

PAIRS = 6  # of a head of 16, of which three quarters are rotated
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(PAIRS)],
    "long_factor": [1.5 + 0.5 * i for i in range(PAIRS)],
    "partial_rotary_factor": 0.75,
}


def phi(original: int, **settings):
    return make_model(
        "Phi3",
        rope_parameters=LONGROPE,
        original_max_position_embeddings=original,
        tie_word_embeddings=True,
        **settings,
    )


MODELS = {
    "phi3": lambda: make_model("Phi3", sliding_window=40),
    "glm": lambda: make_model("Glm", head_dim=16, attention_bias=True),
    "glm4": lambda: make_model("Glm4", head_dim=32, attention_bias=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_transformers(tmp_path, name):
    model = MODELS[name]()
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path)


def test_longrope_within_the_original_context(tmp_path):
    model = phi(original=256)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path, context_length=256)


def test_longrope_beyond_the_original_context(tmp_path):
    """Transformers takes the long factors from the first token beyond it; we for the whole
    context, so that what is cached stays true."""
    model = phi(original=16)
    save(model, tmp_path)
    assert_family(model, tmp_path, asked=[p for p in prompts() if len(p) > 16])


@pytest.mark.parametrize(
    "change", [{"rotary_dim": 16}, {"interleaved": False}, {"magnitude": 1.1}, {"theta": 9000.0}]
)
def test_another_rotation_would_be_seen(tmp_path, change):
    model = make_model("Glm4", head_dim=32)
    checkpoint = open_checkpoint(save(model, tmp_path))
    config = checkpoint.config
    wrong = dataclasses.replace(config, ropes=(dataclasses.replace(config.rope, **change),))
    if "rotary_dim" in change:
        wrong = dataclasses.replace(wrong, ropes=(dataclasses.replace(config.rope, rotary_dim=32),))
    ids = prompts()[3]
    got = reference_logits(checkpoint, wrong, ids)
    checkpoint.close()
    assert relative(got, true_logits(model, ids)) > 10 * LIMIT


def test_what_phi_never_had_is_refused(tmp_path):
    folder = save(make_model("Phi3"), tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    settings["rope_parameters"] = {"rope_type": "linear", "factor": 2.0}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UnsupportedModel, match=r"rope scaling of Phi-3 'linear'.*longrope"):
        open_checkpoint(folder)
