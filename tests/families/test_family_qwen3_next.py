"""Qwen3-Next against transformers: recurrent layers, gated attention."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
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

SMALL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "num_experts": 0,
    "mlp_only_layers": [0, 1, 2, 3],
}
MIXED = ["full_attention", "linear_attention"]


def test_equals_transformers(tmp_path):
    model = make_model("Qwen3Next", **SMALL)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path)


def test_a_strict_chip_equals_transformers(tmp_path):
    model = make_model("Qwen3Next", **{**SMALL, "num_hidden_layers": 2, "layer_types": MIXED})
    assert_family(model, save(model, tmp_path), backend="fake")


@pytest.mark.parametrize(
    "change",
    [
        {"layer_types": MIXED * 2},
        {"linear_conv_kernel_dim": 2, "partial_rotary_factor": 0.5},
        {"linear_num_value_heads": 2, "linear_value_head_dim": 24, "tie_word_embeddings": True},
    ],
)
def test_every_setting_equals_transformers(tmp_path, change):
    model = make_model("Qwen3Next", **{**SMALL, **change})
    save(model, tmp_path)
    assert_reference(model, tmp_path)


@pytest.mark.parametrize("change", [{"output_gate": False}, {"qk_norm": "none"}, {"ropes": 1.0}])
def test_another_network_would_be_seen(tmp_path, change):
    model = make_model("Qwen3Next", **SMALL)
    checkpoint = open_checkpoint(save(model, tmp_path))
    config = checkpoint.config
    if "ropes" in change:
        change = {"ropes": (dataclasses.replace(config.rope, rotary_dim=config.head_dim),)}
    ids = prompts()[3]
    try:
        got = reference_logits(checkpoint, dataclasses.replace(config, **change), ids)
    finally:
        checkpoint.close()
    assert relative(got, true_logits(model, ids)) > 10 * LIMIT


def test_the_way_of_older_files_to_name_layers_is_read(tmp_path):
    folder = save(make_model("Qwen3Next", **SMALL), tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    del settings["layer_types"]
    settings |= {"full_attention_interval": 4, "partial_rotary_factor": 0.25}
    settings["rope_parameters"] = None
    (folder / "config.json").write_text(json.dumps(settings))
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.cached_layers == (3,)
    assert checkpoint.config.rope.rotary_dim == 4
    checkpoint.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layer_types": ["mamba"] * 4}, "layer type"),
        ({"linear_num_value_heads": 3}, "3 value heads share 2 key heads"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)
def test_what_is_not_served_is_named(tmp_path, change, told):
    folder = save(make_model("Qwen3Next", **SMALL), tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, **change}))
    with pytest.raises(CheckpointError, match=told):
        open_checkpoint(folder)
