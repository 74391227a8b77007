"""Mixtral, Qwen2-MoE and Qwen3-MoE against transformers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.config import LayerConfig
from families.checked_family import (
    LIMIT,
    assert_family,
    assert_on,
    assert_reference,
    changed_error,
    make_model,
    prompts,
    save,
)

if TYPE_CHECKING:
    from anychip.model.config import ModelConfig

FEW: dict[str, Any] = {"num_hidden_layers": 2, "num_experts_per_tok": 2}
QWEN = {**FEW, "moe_intermediate_size": 32}
QWEN2 = {**QWEN, "num_experts": 4, "shared_expert_intermediate_size": 48}
MODELS = {
    "mixtral": ("Mixtral", {**FEW, "num_local_experts": 4}),
    "qwen2-moe": ("Qwen2Moe", {**QWEN2, "mlp_only_layers": [1]}),
    "qwen3-moe": ("Qwen3Moe", {**QWEN, "num_experts": 5, "head_dim": 16, "norm_topk_prob": True}),
}
VARIANTS = {
    "mixtral-window": ("Mixtral", {**FEW, "num_local_experts": 3, "sliding_window": 24}),
    "mixtral-one-expert": ("Mixtral", {**FEW, "num_local_experts": 3, "num_experts_per_tok": 1}),
    "qwen2-moe-every-second": (
        "Qwen2Moe",
        {**QWEN2, "num_hidden_layers": 3, "decoder_sparse_step": 2, "norm_topk_prob": True},
    ),
    "qwen2-moe-window": (
        "Qwen2Moe",
        {
            **QWEN2,
            "num_hidden_layers": 4,
            "qkv_bias": False,
            "use_sliding_window": True,
            "sliding_window": 20,
            "max_window_layers": 3,
        },
    ),
    "qwen3-moe-all-experts": (
        "Qwen3Moe",
        {**QWEN, "num_experts": 3, "num_experts_per_tok": 3, "tie_word_embeddings": True},
    ),
    "qwen3-moe-window": (
        "Qwen3Moe",
        {**QWEN, "num_experts": 4, "use_sliding_window": True, "sliding_window": 20}
        | {"attention_bias": True},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_transformers(tmp_path, name):
    family, settings = MODELS[name]
    model = make_model(family, **settings)
    save(model, tmp_path)
    assert _experts_used(model) > settings["num_experts_per_tok"]
    assert_reference(model, tmp_path)
    assert_on(model, tmp_path, "cpu")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_setting_equals_transformers(tmp_path, name):
    family, settings = VARIANTS[name]
    model = make_model(family, **settings)
    save(model, tmp_path)
    assert_reference(model, tmp_path)


def test_recipes_on_a_strict_chip_equal_transformers(tmp_path):
    model = make_model("Qwen2Moe", **{**QWEN2, "num_hidden_layers": 1, "num_experts": 3})
    recipes = {"route_experts": "composed", "expert_mlp": "composed"}
    assert_family(model, save(model, tmp_path), backend="fake", op=recipes, asked=prompts()[1:2])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mixtral", {"renormalize": False}),
        ("mixtral", {"used": 1}),
        ("mixtral", {"used": 3}),
        ("qwen3-moe", {"renormalize": False}),
        ("qwen3-moe", {"used": 3}),
        ("qwen2-moe", {"renormalize": True}),
        ("qwen2-moe", {"shared_gate": False}),
        ("qwen2-moe", {"shared": 0}),
    ],
)
def test_another_mixture_would_be_seen(tmp_path, name, change):
    family, settings = MODELS[name]
    model = make_model(family, **settings)
    save(model, tmp_path)

    def changed(config: ModelConfig) -> ModelConfig:
        return dataclasses.replace(config, experts=dataclasses.replace(config.experts, **change))

    assert changed_error(model, tmp_path, changed) > 10 * LIMIT


def test_a_window_in_other_layers_would_be_seen(tmp_path):
    family, settings = VARIANTS["qwen2-moe-window"]
    model = make_model(family, **settings)
    save(model, tmp_path)

    def changed(config: ModelConfig) -> ModelConfig:
        assert [c.window for c in config.layer_configs] == [20, 0, 20, 0]
        layers = tuple(dataclasses.replace(c, window=20) for c in config.layer_configs)
        return dataclasses.replace(config, layer_configs=layers)

    assert changed_error(model, tmp_path, changed) > 10 * LIMIT


def test_layers_without_experts_are_the_ones_that_the_file_names(tmp_path):
    family, settings = VARIANTS["qwen2-moe-every-second"]
    checkpoint = open_checkpoint(save(make_model(family, **settings), tmp_path))
    sparse, plain = LayerConfig(experts=True), LayerConfig()
    assert checkpoint.config.layer_configs == (plain, sparse, plain)
    assert not checkpoint.unused
    checkpoint.close()


def _experts_used(model: Any) -> int:
    """Experts that the prompts' tokens go to, in the layer where they are fewest."""
    import torch

    used: list[set[int]] = []
    for ids in prompts():
        with torch.no_grad():
            found = model(torch.tensor([ids]), output_router_logits=True).router_logits
        chosen = [s.topk(model.config.num_experts_per_tok).indices for s in found]
        used = used or [set() for _ in chosen]
        for seen, picks in zip(used, chosen, strict=True):
            seen.update(picks.flatten().tolist())
    return min(map(len, used))
