"""GGUF files of mixtures of experts give the logits of the model that they were made from."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.formats import dequantize
from anychip.model.quantize import quantize
from families.checked_family import (
    LIMIT,
    assert_on,
    assert_reference,
    error_of,
    make_model,
    prompts,
    relative,
    true_logits,
)
from families.gguf_copies import write_copy
from families.gguf_expert_copies import EXPERT_CONVERSIONS, fused, halves

if TYPE_CHECKING:
    pass

FEW: dict[str, Any] = {"num_hidden_layers": 2, "num_experts_per_tok": 2, "head_dim": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
QWEN = {**FEW, "num_experts": 4, "moe_intermediate_size": 32}
MODELS: dict[str, dict[str, Any]] = {
    "Mixtral": {**FEW, "num_local_experts": 4},
    "Qwen2Moe": {**QWEN, "shared_expert_intermediate_size": 48, "head_dim": None},
    "Qwen3Moe": {**QWEN, "norm_topk_prob": True},
    "GptOss": {
        **FEW,
        "num_local_experts": 4,
        "sliding_window": 24,
        "rope_parameters": {**YARN, "rope_theta": 150000.0, "truncate": False},
    },
}


def made(name: str) -> Any:
    return make_model(name, **MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_the_model(tmp_path, name):
    model = made(name)
    path = write_copy(model, tmp_path / "copy.gguf", EXPERT_CONVERSIONS[name])
    assert error_of(path, model) < LIMIT / 10


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2Moe", "Qwen3Moe"])
def test_gate_and_up_of_all_experts_may_be_one_tensor(tmp_path, name):
    model = made(name)
    path = write_copy(model, tmp_path / "copy.gguf", fused(EXPERT_CONVERSIONS[name]))
    assert error_of(path, model) < LIMIT / 10


def test_a_tensor_with_both_has_the_rows_of_both(tmp_path):
    def cut(model: Any) -> dict[str, np.ndarray]:
        return {n: a[:, 1:] if "gate_up" in n else a for n, a in right.more(model).items()}

    right = fused(EXPERT_CONVERSIONS["Qwen3Moe"])
    path = tmp_path / "copy.gguf"
    write_copy(made("Qwen3Moe"), path, dataclasses.replace(right, more=cut))
    with pytest.raises(CheckpointError, match=r"ffn_gate_up_exps.*has shape .* needs \(4, 64"):
        open_checkpoint(path)


@pytest.mark.parametrize("name", ["Qwen2Moe", "GptOss"])
def test_the_engine_answers_from_the_file(tmp_path, name):
    model = made(name)
    path = write_copy(model, tmp_path / "copy.gguf", EXPERT_CONVERSIONS[name])
    assert_reference(model, path)
    assert_on(model, path, "cpu")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("Mixtral", {"expert_used_count": 1}),
        ("Mixtral", {"expert_weights_norm": False}),
        ("Mixtral", {"expert_weights_scale": 2.0}),
        ("Qwen2Moe", {"expert_used_count": 3}),
        ("Qwen2Moe", {"expert_weights_norm": True}),
        ("Qwen3Moe", {"expert_weights_norm": False}),
        ("GptOss", {"attention.sliding_window": 30}),
        ("GptOss", {"attention.sliding_window_pattern": [False, True]}),
        ("GptOss", {"rope.scaling.factor": 2.0}),
    ],
)
def test_a_setting_is_read(tmp_path, name, setting):
    model = made(name)
    path = write_copy(model, tmp_path / "wrong.gguf", EXPERT_CONVERSIONS[name], **setting)
    assert error_of(path, model) > 10 * LIMIT


def test_gate_and_up_exchanged_would_be_seen(tmp_path):
    def exchanged(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
        found = halves(name, array)
        return dict(zip(found, [*found.values()][::-1], strict=True))

    model = made("Qwen3Moe")
    wrong = dataclasses.replace(EXPERT_CONVERSIONS["Qwen3Moe"], split=exchanged)
    assert error_of(write_copy(model, tmp_path / "wrong.gguf", wrong), model) > 10 * LIMIT


def _squeezed(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """llama.cpp's converter once dropped dimensions of one element; transformers expects it."""
    return {n: a.squeeze() for n, a in halves(name, array).items()}


def test_the_shared_score_may_be_a_vector(tmp_path):
    model = made("Qwen2Moe")
    old = dataclasses.replace(EXPERT_CONVERSIONS["Qwen2Moe"], split=_squeezed)
    assert error_of(write_copy(model, tmp_path / "old.gguf", old), model) < LIMIT / 10


@pytest.mark.parametrize(
    ("name", "format", "in_one"),
    [("Qwen3Moe", "q8_0", False), ("Mixtral", "q4_0", False), ("Mixtral", "q8_0", True)],
)
def test_quantized_experts_are_taken_by_their_rows(tmp_path, name, format, in_one):
    """The model has the values that the format holds, so that nothing is lost in the file."""
    import torch

    model = made(name)
    with torch.no_grad():
        for name_of, parameter in model.named_parameters():
            if ".experts." in name_of:
                held = dequantize(quantize(parameter.numpy(), format))
                parameter.copy_(torch.from_numpy(held))
    conversion = dataclasses.replace(EXPERT_CONVERSIONS[name], expert_format=format)
    conversion = fused(conversion) if in_one else conversion
    path = write_copy(model, tmp_path / "copy.gguf", conversion)
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        (source,) = [s for s in checkpoint.sources if s.name == "layers.0.experts_gate_up"]
        assert {part.format for part in checkpoint.read(source)} == {format}
    assert error_of(path, model) < LIMIT / 10
    assert_on(model, path, "cpu")


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("Mixtral", {"expert_gating_func": 2}, "expert_gating_func' = 2"),
        ("GptOss", {"expert_gating_func": 1}, "expert_gating_func' = 1"),
        ("Mixtral", {"expert_used_count": 5}, "5 of 4 experts"),
        ("Mixtral", {"expert_count": 3}, "has shape .* needs"),
        ("Mixtral", {"attention.sliding_window": 16}, "sliding_window' = 16"),
        ("Qwen3Moe", {"expert_feed_forward_length": None}, "no 'qwen3moe.expert_feed"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, name, setting, message):
    path = write_copy(made(name), tmp_path / "copy.gguf", EXPERT_CONVERSIONS[name], **setting)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


DEFAULTS: dict[str, dict[str, Any]] = {
    "Qwen2Moe": {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
    "Qwen3Moe": {"moe_intermediate_size": 768},
}
"""Sizes that transformers does not read from a file, as it has them by default."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_transformers_reads_the_same_model_from_the_file(tmp_path, name):
    """So the files are what others take them for."""
    import transformers

    model = make_model(name, **{**MODELS[name], **DEFAULTS[name], "num_hidden_layers": 1})
    conversion = dataclasses.replace(EXPERT_CONVERSIONS[name], split=_squeezed)
    path = write_copy(model, tmp_path / "copy.gguf", conversion)
    load = transformers.AutoModelForCausalLM.from_pretrained
    read = load(tmp_path, gguf_file=path.name, attn_implementation="eager", dtype="float32")
    ids = prompts()[3]
    assert relative(true_logits(read, ids), true_logits(model, ids)) < LIMIT / 100
