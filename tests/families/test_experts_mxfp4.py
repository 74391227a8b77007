"""GPT-OSS as it is published: its experts in MXFP4, against transformers with the same values."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from anychip.model.checkpoint import open_checkpoint
from families.checked_family import assert_reference, make_model, save

EXPERTS = ("gate_up_proj", "down_proj")


def packed(shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random blocks and scales of weights [E, N, K] between -0.75 and 0.75."""
    generator = torch.Generator().manual_seed(seed)
    experts, rows, columns = shape
    blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=generator)
    scales = torch.randint(121, 125, (experts, rows, columns // 32), generator=generator)
    return blocks.to(torch.uint8), scales.to(torch.uint8)


def write(folder: Path) -> torch.nn.Module:
    """A folder with experts in MXFP4, and the model of their values."""
    model = make_model("GptOss", num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2)
    small = {}
    for i, layer in enumerate(model.model.layers):
        for name in EXPERTS:
            parameter = getattr(layer.mlp.experts, name)
            experts, columns, rows = parameter.shape
            blocks, scales = packed((experts, rows, columns), seed=2 * i + len(name))
            with torch.no_grad():
                parameter.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            tensor = f"model.layers.{i}.mlp.experts.{name}"
            small |= {f"{tensor}_blocks": blocks, f"{tensor}_scales": scales}
    save(model, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in weights.items() if not n.endswith(EXPERTS)}
    assert len(kept) == len(weights) - len(small) // 2
    save_file({**kept, **small}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return model


def test_logits_are_those_of_the_same_values(tmp_path):
    model = write(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    formats = {checkpoint.describe(p)[0] for s in checkpoint.sources for p in s.parts}
    assert formats == {"float32", "mxfp4"}
    assert_reference(model, tmp_path)
