"""DeepSeek-V2 and V3 against transformers."""

from __future__ import annotations

import pytest

from families.checked_family import (
    assert_family,
    assert_reference,
    make_model,
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
MODELS = {
    "v2": ("DeepseekV2", {**DENSE, "q_lora_rank": None, "rope_parameters": YARN}),
    "v3": ("DeepseekV3", {**DENSE, "q_lora_rank": 24, "attention_bias": True}),
}


@pytest.mark.parametrize("name", MODELS)
def test_latent_attention_equals_transformers(tmp_path, name):
    family, settings = MODELS[name]
    model = make_model(family, **settings)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_family(model, tmp_path)
