"""GGUF files of DeepSeek-V2 and V3 give the logits of the model that they were made from."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import dequantize
from anychip.model.quantize import quantize
from families.checked_family import (
    LIMIT,
    assert_on,
    error_of,
    make_model,
)
from families.gguf_copies import write_copy
from families.gguf_expert_copies import fused, of_latents

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 32,
    "v_head_dim": 24,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.7,
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}
LITE = {"n_group": 1, "topk_group": 1, "q_lora_rank": None, "topk_method": "greedy"}
MODELS = {
    "v2-lite": ("DeepseekV2", {**LITE, "rope_parameters": YARN}),
    "v2": ("DeepseekV2", {"q_lora_rank": 24, "topk_method": "group_limited_greedy"}),
    "v3": ("DeepseekV3", {"q_lora_rank": 24, "rope_parameters": YARN}),
}


def made(name: str) -> Any:
    """With a bias that changes which experts V3 chooses."""
    import torch

    family, settings = MODELS[name]
    model = make_model(family, **{**SIZES, **settings})
    generator = torch.Generator().manual_seed(5)
    for key, values in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            values.copy_(0.3 * torch.randn(values.shape, generator=generator))
    return model


def copy_of(model: Any, path: Path, **settings: Any) -> Path:
    return write_copy(model, path / "copy.gguf", of_latents(model.config), **settings)


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_the_model(tmp_path, name):
    model = made(name)
    assert error_of(copy_of(model, tmp_path), model) < LIMIT / 10


def test_experts_with_gate_and_up_in_one_tensor_are_read(tmp_path):
    model = made("v3")
    path = write_copy(model, tmp_path / "copy.gguf", fused(of_latents(model.config)))
    assert error_of(path, model) < LIMIT / 10


def test_the_engine_answers_from_the_file(tmp_path):
    model = made("v3")
    assert_on(model, copy_of(model, tmp_path), "cpu")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("v2", {"expert_group_used_count": 4}),
        ("v2", {"expert_group_count": None, "expert_group_used_count": None}),
        ("v2", {"expert_weights_scale": 1.0}),
        ("v2", {"expert_weights_norm": True}),
        ("v2-lite", {"rope.scaling.yarn_log_multiplier": None}),
        ("v3", {"rope.scaling.yarn_log_multiplier": 0.1}),
        ("v3", {"rope.scaling.factor": 2.0}),
        ("v3", {"expert_used_count": 2}),
        ("v3", {"expert_weights_norm": False}),
    ],
    ids=str,
)
def test_a_setting_is_read(tmp_path, name, setting):
    model = made(name)
    assert error_of(copy_of(model, tmp_path, **setting), model) > 10 * LIMIT


def test_quantized_keys_may_lie_transposed(tmp_path):
    """The model has the values that the format holds, so that nothing is lost in the file."""
    import torch

    model = made("v2-lite")
    nope, rank = SIZES["qk_nope_head_dim"], SIZES["kv_lora_rank"]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("kv_b_proj.weight"):
                heads = parameter.reshape(4, -1, rank)  # a view
                for part, axes in ((heads[:, :nope], (1, 2)), (heads[:, nope:], (1, 1))):
                    rows = part.transpose(*axes)
                    plain = rows.reshape(-1, rows.shape[-1]).numpy()
                    held = torch.from_numpy(dequantize(quantize(plain, "q8_0")))
                    rows.copy_(held.reshape(rows.shape))
    quantized = ("attn_k_b.weight", "attn_v_b.weight")
    conversion = dataclasses.replace(
        of_latents(model.config), expert_format="q8_0", quantized=quantized
    )
    path = write_copy(model, tmp_path / "copy.gguf", conversion)
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        (source,) = [s for s in checkpoint.sources if s.name == "layers.1.expand"]
        assert {checkpoint.describe(part)[0] for part in source.parts} == {"q8_0"}
    assert error_of(path, model) < LIMIT / 10


def test_keys_that_do_not_lie_transposed_would_be_seen(tmp_path):
    model = made("v2-lite")
    right = of_latents(model.config)

    def split(name: str, array: Any) -> Any:
        found = right.split(name, array)
        return {n: a.swapaxes(1, 2) if "k_b_proj" in n else a for n, a in found.items()}

    wrong = dataclasses.replace(right, split=split)  # 32 x 32: no shape tells
    assert error_of(write_copy(model, tmp_path / "wrong.gguf", wrong), model) > 10 * LIMIT


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ({"expert_gating_func": 3}, UnsupportedModel, "expert_gating_func"),
        ({"attention.key_length_mla": None}, CheckpointError, "attention.key_length_mla"),
        ({"leading_dense_block_count": 2}, CheckpointError, "ffn_gate.weight"),
        ({"expert_group_count": 3}, CheckpointError, "3 groups"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(tmp_path, setting, error, message):
    path = copy_of(made("v2"), tmp_path, **setting)
    with pytest.raises(error, match=message):
        open_checkpoint(path)
