"""Qwen3-Next against transformers: recurrent layers, gated attention."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from answers.equality import Oracle, assert_answers, greedy, last_logits
from anychip.engine.offline import OfflineEngine
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.families import config_from_hf
from anychip.run.reference import reference_logits
from families.checked_family import (
    LIMIT,
    assert_family,
    assert_reference,
    make_model,
    offline,
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
    "linear_value_head_dim": 32,
    "num_experts": 0,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
MIXED = ["full_attention", "linear_attention"]
TWO_LAYERS = {**SMALL, "num_hidden_layers": 2, "layer_types": MIXED}

ROUNDED = LIMIT / 3
"""Transformers computes the delta rule in float32 whatever the model is in."""


def made(**settings: Any) -> Any:
    """A model whose decays, which begin at random, are the same each time."""
    import torch

    torch.manual_seed(7)
    return make_model("Qwen3Next", seed=2, **settings)


def some_prompts() -> list[list[int]]:
    """A token alone, and two that begin alike."""
    return [prompts()[i] for i in (0, 2, 3)]


def test_equals_transformers(tmp_path):
    model = made(**{**SMALL, **EXPERTS, "mlp_only_layers": [1]})
    save(model, tmp_path)
    assert_reference(model, tmp_path, ROUNDED)
    assert_family(model, tmp_path, asked=some_prompts())


def test_a_strict_chip_equals_transformers(tmp_path):
    model = made(**TWO_LAYERS)
    assert_family(model, save(model, tmp_path), backend="fake", asked=some_prompts()[1:2])


def fill(engine: OfflineEngine, value: float) -> None:
    """Every slot of recurrent state that the device has."""
    runner = engine.engine.runner
    for tensor in runner._states.values():
        runner._chip.memory.copy_in(tensor, np.full(tensor.shape, value, np.float32).data)


def test_prefixes_are_found_again_and_go_on_from_their_snapshots(tmp_path):
    model = made(**TWO_LAYERS)
    save(model, tmp_path)
    asked = [p for p in prompts() if len(p) > 16]
    longest = asked[-1]
    with offline(tmp_path) as engine:
        fill(engine, np.nan)  # nothing begins with what lies there
        assert_answers(engine, Oracle(model), asked, 12)
        before = engine.engine.scheduler.stats()
        assert_answers(engine, Oracle(model), asked, 12, batch=2)
        after = engine.engine.scheduler.stats()
        whole = sum((len(prompt) - 1) // 16 * 16 for prompt in asked)
        assert after.cached_tokens - before.cached_tokens == whole
        assert after.snapshots_taken - after.snapshots_evicted > 0
        turn = [*longest, *longest[:40]]
        (answer,) = engine.generate([turn], greedy(1))
        assert answer.cached_tokens == (len(longest) - 1) // 16 * 16
        assert relative(last_logits(engine), true_logits(model, turn)[-1]) < LIMIT
        fill(engine, 0.0)
        engine.generate([longest], greedy(1))
        wrong = relative(last_logits(engine), true_logits(model, longest)[-1])
        assert wrong > 10 * LIMIT, "a snapshot that is overwritten would not be seen"


def test_retracted_requests_answer_alike(tmp_path):
    model = made(**TWO_LAYERS)
    save(model, tmp_path)
    with offline(tmp_path, force_retract_every=5, chunked_prefill_size=32) as engine:
        assert_answers(engine, Oracle(model), prompts(), 12)
        stats = engine.engine.scheduler.stats()
    assert stats.retractions > 2 and not stats.check_violations


@pytest.mark.parametrize(
    "change",
    [
        {"layer_types": MIXED * 2, **EXPERTS, "norm_topk_prob": False, "decoder_sparse_step": 2},
        {"linear_conv_kernel_dim": 2, "partial_rotary_factor": 0.5},
        {"linear_num_value_heads": 2, "linear_value_head_dim": 24, "tie_word_embeddings": True},
    ],
)
def test_every_setting_equals_transformers(tmp_path, change):
    model = made(**{**SMALL, **change})
    save(model, tmp_path)
    assert_reference(model, tmp_path, ROUNDED)


@pytest.mark.parametrize("change", [{"output_gate": False}, {"qk_norm": "none"}, {"ropes": 1.0}])
def test_another_network_would_be_seen(tmp_path, change):
    model = made(**SMALL)
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
    folder = save(made(**SMALL), tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    del settings["layer_types"]
    settings |= {"full_attention_interval": 4, "partial_rotary_factor": 0.25}
    settings["rope_parameters"] = None
    (folder / "config.json").write_text(json.dumps(settings))
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.cached_layers == (3,)
    assert checkpoint.config.rope.rotary_dim == 4
    checkpoint.close()


def test_what_is_left_out_is_the_default_of_transformers():
    import transformers

    given = {"vocab_size": 384, "num_attention_heads": 2, "num_hidden_layers": 8}
    given |= {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512}
    whole = transformers.Qwen3NextConfig(**given).to_dict()
    of = {"architectures": ["Qwen3NextForCausalLM"]}
    config = config_from_hf({**given, **of})
    assert config == config_from_hf({**whole, **of})
    assert config.cached_layers == (3, 7) and config.rope.rotary_dim == 64


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layer_types": ["mamba"] * 4}, "layer type"),
        ({"linear_num_value_heads": 3}, "3 value heads share 2 key heads"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)
def test_what_is_not_served_is_named(tmp_path, change, told):
    folder = save(made(**SMALL), tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, **change}))
    with pytest.raises(CheckpointError, match=told):
        open_checkpoint(folder)
