"""DeepSeek-V2 and V3 against transformers."""

from __future__ import annotations

import dataclasses

import pytest

from families.checked_family import (
    LIMIT,
    assert_family,
    assert_reference,
    changed_error,
    make_model,
    prompts,
    save,
)

LATENT = {
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "num_key_value_heads": 4,
}
DENSE = {
    **LATENT,
    "first_k_dense_replace": 3,
    "n_routed_experts": 4,
    "num_experts_per_tok": 1,
    "n_group": 2,
    "topk_group": 1,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}
EXPERTS = {
    **LATENT,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.7,
}
MODELS = {
    "v2-dense": ("DeepseekV2", {**DENSE, "q_lora_rank": None, "rope_parameters": YARN}),
    "v2-greedy": ("DeepseekV2", {**EXPERTS, "q_lora_rank": None, "topk_method": "greedy"}),
    "v2-groups": (
        "DeepseekV2",
        {**EXPERTS, "q_lora_rank": 24, "topk_method": "group_limited_greedy"},
    ),
    "v3": (
        "DeepseekV3",
        {**EXPERTS, "q_lora_rank": 24, "attention_bias": True, "rope_parameters": YARN},
    ),
    "v3-unweighed": (
        "DeepseekV3",
        {**EXPERTS, "q_lora_rank": None, "norm_topk_prob": False, "rope_interleave": False},
    ),
}


def model_of(name: str):
    """With a bias that changes which experts V3 chooses."""
    import torch

    family, settings = MODELS[name]
    model = make_model(family, **settings)
    generator = torch.Generator().manual_seed(5)
    for key, values in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            values.copy_(0.3 * torch.randn(values.shape, generator=generator))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_equals_transformers(tmp_path, name):
    model = model_of(name)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    some = None if name in ("v2-groups", "v3") else [prompts()[i] for i in (0, 3)]
    assert_family(model, tmp_path, asked=some)


EXPERT_CHANGES = [
    {"renormalize": False},
    {"scale": 1.0},
    {"groups_kept": 4},
    {"group_score": "max"},
    {"used": 2},
    {"choice_bias": False},
    {"scoring": "softmax"},
]


@pytest.mark.parametrize("change", EXPERT_CHANGES, ids=str)
def test_another_choice_of_experts_would_be_seen(tmp_path, change):
    model = model_of("v3")
    save(model, tmp_path)
    assert changed_error(model, tmp_path, lambda c: _with_experts(c, change)) > 10 * LIMIT


def test_the_sharpening_of_yarn_would_be_seen(tmp_path):
    model = model_of("v3")
    save(model, tmp_path)
    plain = (LATENT["qk_nope_head_dim"] + LATENT["qk_rope_head_dim"]) ** -0.5
    error = changed_error(model, tmp_path, lambda c: dataclasses.replace(c, attention_scale=plain))
    assert error > 10 * LIMIT


def _with_experts(config, change):
    return dataclasses.replace(config, experts=dataclasses.replace(config.experts, **change))
