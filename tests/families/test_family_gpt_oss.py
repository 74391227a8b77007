"""GPT-OSS against transformers: sinks, alternate windows, biases, the clamp, transposed weights."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.families import config_from_hf
from families.checked_family import (
    LIMIT,
    assert_family,
    assert_reference,
    changed_error,
    make_model,
    prompts,
    save,
)

if TYPE_CHECKING:
    from anychip.model.config import ModelConfig

ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 128,
}
SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "head_dim": 16,
    "sliding_window": 24,
    "swiglu_limit": 1.0,  # the published 7 is hardly reached by such weights
    "rope_parameters": ROPE,
}


def _model(**changes: Any) -> Any:
    import torch

    model = make_model("GptOss", **{**SETTINGS, **changes})
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.copy_(torch.linspace(-1.0, 2.0, 4))
    return model


def test_equals_transformers(tmp_path):
    model = _model()
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": False, "tie_word_embeddings": True},
        {"layer_types": ["full_attention", "sliding_attention"], "swiglu_alpha": 1.3},
        {"sliding_window": None, "num_experts_per_tok": 4},
    ],
)
def test_every_setting_equals_transformers(tmp_path, changes):
    model = _model(**changes)
    assert_reference(model, save(model, tmp_path))


def test_recipes_on_a_strict_chip_equal_transformers(tmp_path):
    model = _model(num_hidden_layers=1, num_local_experts=3)
    recipes = {"expert_mlp": "composed", "grouped_linear": "composed", "sink_attention": "composed"}
    assert_family(model, save(model, tmp_path), backend="fake", op=recipes, asked=prompts()[1:2])


@pytest.mark.parametrize(
    "change",
    [
        {"limit": 7.0},
        {"alpha": 1.0},
        {"used": 1},
        {"used": 3},
        {"router_bias": False},
        {"bias": False},
        {"scoring": "softmax"},
    ],
    ids=str,
)
def test_another_mixture_would_be_seen(tmp_path, change):
    model = _model()
    save(model, tmp_path)

    def changed(config: ModelConfig) -> ModelConfig:
        return dataclasses.replace(config, experts=dataclasses.replace(config.experts, **change))

    assert changed_error(model, tmp_path, changed) > 10 * LIMIT


def test_other_attention_would_be_seen(tmp_path):
    model = _model()
    save(model, tmp_path)

    def without_sinks(config: ModelConfig) -> ModelConfig:
        return dataclasses.replace(config, sinks=False)

    def windows_swapped(config: ModelConfig) -> ModelConfig:
        assert [c.window for c in config.layer_configs] == [24, 0]
        return dataclasses.replace(config, layer_configs=config.layer_configs[::-1])

    def whole_ramp(config: ModelConfig) -> ModelConfig:
        return dataclasses.replace(config, ropes=(dataclasses.replace(config.rope, truncate=True),))

    for change in (without_sinks, windows_swapped, whole_ramp):
        assert changed_error(model, tmp_path, change) > 10 * LIMIT, change


def test_sinks_of_zero_are_not_sinks_left_out(tmp_path):
    import torch

    model = _model()
    save(model, tmp_path)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.zero_()
    assert changed_error(model, tmp_path, lambda config: config) > 10 * LIMIT
    assert_reference(model, save(model, tmp_path))


@pytest.mark.parametrize("step", [-1e-6, 1e-6])
def test_equal_scores_go_to_the_experts_of_lower_index(tmp_path, step):
    """Every router score is equal; transformers is given scores that a hair tells apart."""
    import torch

    model = _model()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.router.weight.zero_()
            layer.mlp.router.bias.zero_()
    save(model, tmp_path)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.router.bias.copy_(step * torch.arange(4))
    error = changed_error(model, tmp_path, lambda config: config)
    assert error < LIMIT if step < 0 else error > 10 * LIMIT


def test_published_spelling_is_read():
    """As the hub has it: rope_scaling, its theta outside, window and experts by other words."""
    published = {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "initial_context_length": 4096,
        "intermediate_size": 2880,
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {k: v for k, v in ROPE.items() if k != "rope_theta"} | {"factor": 32.0},
        "rope_theta": 150000,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    }
    config = config_from_hf(published)
    assert config.experts is not None
    assert (config.experts.count, config.experts.used, config.experts.limit) == (32, 4, 7.0)
    assert [c.window for c in config.layer_configs[:3]] == [128, 0, 128]
    assert (config.rope.theta, config.rope.truncate, config.rope.factor) == (150000, False, 32)
    assert config.rope.magnitude == pytest.approx(1.3465735902799727)
    del published["rope_scaling"]
    with pytest.raises(CheckpointError, match="no 'rope_scaling'"):
        config_from_hf(published)


def test_the_file_is_read_expert_by_expert(tmp_path):
    """What is taken of a transposed tensor is one expert's rows, gate first."""
    import torch

    model = _model(num_hidden_layers=1)
    checkpoint = open_checkpoint(save(model, tmp_path))
    (source,) = [s for s in checkpoint.sources if s.name == "layers.0.experts_gate_up"]
    parts = checkpoint.read(source)
    checkpoint.close()
    assert [part.shape for part in parts] == [(192, 64)] * 4
    whole = model.model.layers[0].mlp.experts.gate_up_proj[2].detach().T
    wanted = torch.cat([whole[::2], whole[1::2]]).numpy()
    assert parts[2].data == wanted.tobytes()
