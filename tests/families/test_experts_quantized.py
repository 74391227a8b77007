"""Mixtures of experts whose linears are quantized one by one, one with latent attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from safetensors.torch import load_file

import quantized_folders as schemes
from answers.equality import config
from anychip.engine.offline import OfflineEngine
from anychip.model.checkpoint import open_checkpoint
from families.checked_family import assert_reference, make_model, save

MIXTURE = {
    "num_hidden_layers": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}

LATENT = {
    "num_hidden_layers": 2,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
}


def formats_of(folder: Path) -> dict[str, set[str]]:
    checkpoint = open_checkpoint(folder)
    return {s.name: {checkpoint.describe(p)[0] for p in s.parts} for s in checkpoint.sources}


@pytest.mark.parametrize("name", ["gptq4_own_orders", "awq", "fp8_block"])
def test_logits_are_those_of_the_same_values(name, tmp_path):
    scheme, plain = schemes.SCHEMES[name], tmp_path / "plain"
    save(make_model("Qwen3Moe", **MIXTURE), plain)
    folder = schemes.quantize_folder(plain, tmp_path / "quantized", scheme)
    found = formats_of(folder)
    told = {
        # All experts' rows are one matrix, and each expert's columns have an order of their own.
        "gptq4_own_orders": {"u4g32o unlike its neighbours"},
        "awq": {"u4g32"},
        "fp8_block": {"fp8 in 48x48 blocks"},
    }[name]
    assert found["layers.1.experts_gate_up"] == told
    model = transformers.AutoModelForCausalLM.from_pretrained(
        plain, dtype="float32", attn_implementation="eager"
    )
    assert_reference(model.eval(), folder)


def test_what_expands_a_latent_may_be_quantized_too(tmp_path):
    """DeepSeek-V3's fp8: a linear in the file, a tensor that operators read as it is here."""
    scheme, plain = schemes.SCHEMES["fp8_block"], tmp_path / "plain"
    save(make_model("DeepseekV3", **LATENT), plain)
    folder = schemes.quantize_folder(plain, tmp_path / "quantized", scheme)
    assert formats_of(folder)["layers.0.expand"] == {"fp8 in 48x48 blocks"}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        plain, dtype="float32", attn_implementation="eager"
    )
    assert_reference(model.eval(), folder)
    lines: list[str] = []
    with OfflineEngine(config(folder, backend="fake", dtype="float32"), lines.append):
        (table,) = (line for line in lines if line.startswith("weights:"))
    (row,) = (line for line in table.split("\n") if line.startswith("  fp8"))
    expected = sum(n.endswith("_proj.weight") for n in load_file(plain / "model.safetensors"))
    assert int(row.split()[4]) == expected
