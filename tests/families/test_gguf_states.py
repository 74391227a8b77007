"""GGUF files of Qwen3-Next give the logits of the model that they were made from."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import dequantize
from anychip.model.quantize import quantize
from anychip.run.reference import reference_logits
from families.checked_family import (
    LIMIT,
    assert_on,
    error_of,
    make_model,
    prompts,
    relative,
    save,
    true_logits,
)
from families.gguf_copies import Conversion, write_copy
from families.gguf_expert_copies import fused, of_states

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
ROUNDED = LIMIT / 3
"""Transformers computes the delta rule in float32 whatever the model is in."""


def made(**settings: Any) -> Any:
    """A model whose decays, which begin at random, are the same each time."""
    import torch

    torch.manual_seed(7)
    return make_model("Qwen3Next", seed=2, **{**SIZES, **settings})


def copy_of(model: Any, path: Path, conversion: Conversion | None = None, **settings: Any) -> Path:
    conversion = conversion or of_states(model.config)
    return write_copy(model, path / "copy.gguf", conversion, **settings)


@pytest.mark.parametrize("old", [False, True])
def test_experts_with_gate_and_up_in_one_tensor_are_read(tmp_path, old):
    model = made()
    path = copy_of(model, tmp_path, fused(of_states(model.config, old=old)))
    assert error_of(path, model) < ROUNDED


@pytest.mark.parametrize("old", [False, True])
def test_logits_equal_those_of_the_model(tmp_path, old):
    model = made()
    path = copy_of(model, tmp_path, of_states(model.config, old=old))
    assert error_of(path, model) < ROUNDED
    folder = open_checkpoint(save(model, tmp_path / "folder")).config
    ours = open_checkpoint(path).config
    assert dataclasses.replace(ours, norm_eps=folder.norm_eps) == folder


def test_the_engine_answers_from_the_file(tmp_path):
    model = made()
    assert_on(model, copy_of(model, tmp_path), "cpu")


def _changed(name: str) -> Any:
    """The way of a file to tell a tensor, with one mistake."""

    def split(right: Any, tensor: str, array: np.ndarray) -> dict[str, np.ndarray]:
        found = dict(right(tensor, array))
        if name in tensor:
            found = {key: change(value) for key, value in found.items()}
        return found

    changes = {"A_log": lambda x: np.log(-x), "qkvz": lambda x: np.roll(x, 16, axis=0)}
    change = changes.get(name, lambda x: x + 1)
    return split


@pytest.mark.parametrize("name", ["A_log", "qkvz", "linear_attn.norm", "dt_bias"])
def test_what_lies_otherwise_would_be_seen(tmp_path, name):
    model, changed = made(), _changed(name)
    right = of_states(model.config)
    wrong = dataclasses.replace(right, split=lambda n, a: changed(right.split, n, a))
    assert not error_of(copy_of(model, tmp_path, wrong), model) < 10 * LIMIT  # or it overflows


@pytest.mark.parametrize(
    "setting",
    [
        {"rope.dimension_count": 16},
        {"expert_used_count": 3},
        {"expert_weights_norm": False},
    ],
    ids=str,
)
def test_a_setting_is_read(tmp_path, setting):
    model = made()
    assert error_of(copy_of(model, tmp_path, **setting), model) > 10 * LIMIT


def test_which_layers_keep_a_state_is_read(tmp_path):
    """By a period, or by a mark of each layer; layers that predict further tokens are left out."""
    kinds = ["full_attention", "linear_attention"]
    model = made(num_hidden_layers=2, layer_types=kinds)
    marks = {"full_attention_interval": None, "attention.recurrent_layers": [False, True, False]}
    further = {"block_count": 3, "nextn_predict_layers": 1}
    conversion = dataclasses.replace(of_states(model.config), more=_further_layer)
    path = copy_of(model, tmp_path, conversion, **marks, **further)
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        assert checkpoint.config.recurrent_layers == (1,)
        assert checkpoint.unused == ("blk.2.nextn.enorm.weight",)
        got = reference_logits(checkpoint, checkpoint.config, prompts()[3])
    assert relative(got, true_logits(model, prompts()[3])) < ROUNDED
    assert open_checkpoint(copy_of(made(), tmp_path)).config.recurrent_layers == (0, 1, 2)


def _further_layer(model: Any) -> dict[str, np.ndarray]:
    return {"blk.2.nextn.enorm.weight": np.ones(model.config.hidden_size, np.float32)}


def test_quantized_states_are_taken_by_their_rows(tmp_path):
    """The model has the values that the format holds, so that nothing is lost in the file."""
    import torch

    model = made()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "in_proj" in name or "q_proj" in name:
                held = dequantize(quantize(parameter.numpy(), "q8_0"))
                parameter.copy_(torch.from_numpy(held))
    quantized = ("attn_qkv.weight", "attn_gate.weight", "ssm_ba.weight", "attn_q.weight")
    conversion = dataclasses.replace(
        of_states(model.config), expert_format="q8_0", quantized=quantized
    )
    path = copy_of(model, tmp_path, conversion)
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        (source,) = [s for s in checkpoint.sources if s.name == "layers.0.delta_in"]
        assert {part.format for part in checkpoint.read(source)} == {"q8_0"}
    assert error_of(path, model) < ROUNDED


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ({"ssm.inner_size": 126}, CheckpointError, "126, which does not divide into 4"),
        ({"ssm.time_step_rank": 0}, CheckpointError, "divide into 0 value heads"),
        ({"ssm.state_size": None}, CheckpointError, "no 'qwen3next.ssm.state_size'"),
        ({"ssm.group_count": 3}, CheckpointError, "4 value heads share 3 key heads"),
        ({"attention.recurrent_layers": [True]}, CheckpointError, "does not tell of 4 layers"),
        ({"full_attention_interval": 0}, CheckpointError, "0th layer"),
        ({"nextn_predict_layers": 4}, CheckpointError, "nextn_predict_layers' is 4"),
        ({"expert_gating_func": 2}, UnsupportedModel, "expert_gating_func' = 2"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(tmp_path, setting, error, message):
    path = copy_of(made(), tmp_path, **setting)
    with pytest.raises(error, match=message):
        open_checkpoint(path)
