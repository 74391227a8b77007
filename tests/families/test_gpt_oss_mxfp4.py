"""GPT-OSS as it is published, experts in MXFP4: against transformers, which unpacks them itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from anychip.model.checkpoint import open_checkpoint
from families.checked_family import (
    LIMIT,
    assert_on,
    assert_reference,
    changed_error,
    make_model,
    save,
)

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "head_dim": 16,
    "sliding_window": 24,
    "swiglu_limit": 1.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
}
PACKED = ("gate_up_proj", "down_proj")


def _published(folder: Path) -> Any:
    """A folder as the hub has it, and transformers' model of it."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import GptOssForCausalLM, Mxfp4Config

    save(make_model("GptOss", **SETTINGS), folder)
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith(PACKED):
            tensors[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        shape = (experts, rows, columns // 32)
        blocks = torch.randint(0, 256, (*shape, 16), generator=generator)
        scales = torch.randint(120, 123, shape, generator=generator)
        tensors |= {f"{name}_blocks": blocks.byte(), f"{name}_scales": scales.byte()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    described = json.loads((folder / "config.json").read_text())
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    described["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    (folder / "config.json").write_text(json.dumps(described))
    return GptOssForCausalLM.from_pretrained(
        folder,
        quantization_config=Mxfp4Config(dequantize=True),
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("published")
    return _published(folder), folder


def test_equals_transformers(published):
    model, folder = published
    assert_reference(model, folder)
    assert_on(model, folder, "cpu")


def test_experts_keep_their_format_and_come_one_by_one(published):
    _, folder = published
    checkpoint = open_checkpoint(folder)
    (source,) = [s for s in checkpoint.sources if s.name == "layers.1.experts_down"]
    parts = checkpoint.read(source)
    config, unused = checkpoint.config, checkpoint.unused
    checkpoint.close()
    assert [(part.format, part.shape) for part in parts] == [("mxfp4", (64, 96))] * 4
    assert config.dtype == "quantized"
    assert not unused


def test_gate_and_up_in_turn_are_told_apart(published):
    """The other half of a pair would be seen: the model's own weights with the two exchanged."""
    import torch

    model, folder = published
    assert changed_error(model, folder, lambda config: config) < LIMIT
    experts = model.model.layers[0].mlp.experts
    with torch.no_grad():
        pairs = experts.gate_up_proj.unflatten(-1, (-1, 2)).flip(-1).flatten(-2).clone()
        kept = experts.gate_up_proj.clone()
        experts.gate_up_proj.copy_(pairs)
        wrong = changed_error(model, folder, lambda config: config)
        experts.gate_up_proj.copy_(kept)
    assert wrong > 10 * LIMIT
