"""Both forms of latent attention on the cpu chip: absorbed, and multiplied out where asked for."""

from __future__ import annotations

import pytest

from anychip.chips.cpu.registration import CpuChip
from anychip.contract.discovery import open_chip
from families.checked_family import assert_family, make_model, prompts, save

LATENT = {
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 2,
    "num_hidden_layers": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 1,
    "n_group": 1,
    "topk_group": 1,
}


@pytest.mark.parametrize("form", ["", "_multiplied_out"])
def test_each_form_equals_transformers(tmp_path, form):
    chip = open_chip(CpuChip.name, 0, {})
    ids = [i.id for i in chip.operators.of("expanded_attention")]
    chip.close()
    chosen = next(i for i in ids if i.endswith(f".expanded_attention{form}"))
    model = make_model("DeepseekV3", **LATENT)
    save(model, tmp_path)
    some = [prompts()[i] for i in (0, 1, 3)]
    assert_family(model, tmp_path, asked=some, op={"expanded_attention": chosen})
