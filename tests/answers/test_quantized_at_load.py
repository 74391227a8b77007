"""--quantization: a plain model computed in other formats, made while it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import quantized_folders as schemes
import tiny_models
from answers.equality import config, greedy, last_logits, tiny_prompts
from anychip.engine.build import checker_of
from anychip.engine.loaded import LoadedModel
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine
from anychip.model.errors import CheckpointError
from anychip.model.quantized.store import READERS
from anychip.model.tiny import write_tiny
from anychip.model.tiny_family import write_family
from anychip.model.tiny_quantized import quantization_config
from anychip.run.weight_plan import AT_LOAD, ModelPlanError
from anychip.settings.model import MADE_AT_LOAD, QUANTIZED_BEFORE

LIMITS = {
    "w8a8_int8": 0.06,
    "q8_0": 0.04,
    "q5_1": 0.2,
    "q5_0": 0.25,
    "q4_1": 0.32,
    "q4_0": 0.4,
}
"""Relative L2 of logits against the plain model in float32: about twice what was measured."""

MIXTURE = {
    **{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 320},
    **{"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    **{"num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64},
    **{"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"},
    **{"tie_word_embeddings": False, "sliding_window": None, "eos_token_id": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    return tiny_models.make_hf_folder(path, dtype="bfloat16", tied=False)


def started(path, backend="cpu", **changes):
    chosen = {"dtype": "float32", "max_total_tokens": 512, **changes}
    return OfflineEngine(config(path, backend=backend, **chosen))


def logits(path, **changes) -> np.ndarray:
    with started(path, **changes) as offline:
        offline.generate([tiny_prompts()[-1]], greedy(1))
        return last_logits(offline).astype(np.float64)


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def compressed(plain: Path, to: Path) -> Path:
    """The same model as compressed-tensors has it, its numbers by the definition of int8 rows."""
    to.mkdir()
    found = {}
    for name, values in load_file(plain / "model.safetensors").items():
        if values.ndim != 2 or not name.startswith("model.layers."):
            found[name] = values
            continue
        rows = values.float().numpy()
        scales = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
        found[name] = torch.from_numpy(np.rint(rows / scales).astype(np.int8))
        found[f"{name}_scale"] = torch.from_numpy(scales)
    save_file(found, to / "model.safetensors", {"format": "pt"})
    settings = json.loads((plain / "config.json").read_text())
    settings["quantization_config"] = quantization_config("w8a8")
    (to / "config.json").write_text(json.dumps(settings))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (to / name).write_bytes((plain / name).read_bytes())
    return to


def test_names_are_those_that_the_flag_has():
    assert tuple(AT_LOAD) == MADE_AT_LOAD == tuple(LIMITS)
    assert {*QUANTIZED_BEFORE} == {*READERS, "gguf"}


def test_logits_stay_near_those_of_the_plain_model(tmp_path):
    path = write_tiny(tmp_path, "bfloat16")
    exact = logits(path)
    errors = {name: distance(logits(path, quantization=name), exact) for name in LIMITS}
    assert all(0 < errors[name] < LIMITS[name] for name in LIMITS), errors
    assert errors["q4_0"] > 2 * LIMITS["w8a8_int8"]  # the limit of one would not pass another


def test_int8_is_what_a_compressed_tensors_folder_of_the_same_numbers_gives(folder, tmp_path):
    before = compressed(folder, tmp_path / "compressed")
    made = logits(folder, quantization="w8a8_int8")
    assert np.array_equal(made, logits(before))
    tensors = load_file(before / "model.safetensors")
    row = tensors["model.layers.0.mlp.down_proj.weight"][3]
    row[int(row.abs().argmin())] += 1  # one number by one step
    save_file(tensors, before / "model.safetensors", {"format": "pt"})
    assert not np.array_equal(made, logits(before))


@pytest.mark.parametrize("name", MADE_AT_LOAD)
def test_it_is_told_and_operators_agree_with_the_oracle(folder, name, tmp_path):
    lines: list[str] = []
    checks = {"check_ops": True, "check_ops_dir": str(tmp_path)}
    asked = config(folder, quantization=name, max_total_tokens=256, **checks)
    with OfflineEngine(asked, lines.append) as offline:
        offline.generate([tiny_prompts()[1]], greedy(3))
        counts = checker_of(offline.engine).counts
        assert counts.checked > 20 and not counts.diverged
        info, format = offline.info, AT_LOAD[name]
    (table,) = (line for line in lines if line.startswith("weights:"))
    assert f"quantized to {format} at load" in table
    assert table.count("as it is") == 1  # embedding and output
    assert info.quantization == name
    assert set(info.weights) == {"bfloat16", format}


def test_a_router_stays_and_experts_do_not(tmp_path):
    path = write_family(tmp_path, MIXTURE, "bfloat16")
    with LoadedModel(config(path, quantization="q8_0")) as model:
        plans = {w.source.name: w.spec.format for w in model.opened.plan.weights}
    assert {plans.pop(name) for name in ("embedding", "lm_head", "layers.0.router")} == {"bfloat16"}
    assert {"layers.0.experts_gate_up", "layers.0.experts_down"} < set(plans)
    assert set(plans.values()) == {"q8_0"}
    with pytest.raises(ModelPlanError, match=r"'layers.0.experts_gate_up': chip 'cpu' declines it"):
        LoadedModel(config(path, quantization="w8a8_int8"))


def refused(path, name, **changes) -> str:
    with pytest.raises(StartError) as caught:
        started(path, quantization=name, **changes)
    return str(caught.value)


@pytest.mark.parametrize("backend", ["fake", "torch"])
def test_a_chip_without_the_format_says_what_it_has(folder, backend):
    options = {"device": "cpu"} if backend == "torch" else {}
    said = refused(folder, "q8_0", backend=backend, chip_option=options)
    assert f"--quantization q8_0: chip '{backend}' multiplies by weights in float32" in said
    assert said.endswith("leave the flag out")


def test_a_model_that_is_quantized_already_is_not_quantized_again(folder, tmp_path):
    gptq, _ = schemes.write_pair(tmp_path / "a", schemes.SCHEMES["gptq4"], tied=False)
    said = refused(gptq, "w8a8_int8")
    assert "are quantized already, by gptq, in u4g" in said and "leave the flag out" in said
    file = write_tiny(tmp_path, "q4_0", layers=1)
    assert "are quantized already, in q4_0; leave" in refused(file, "q8_0")
    assert "are quantized already, in q4_0; leave" in refused(file, "gptq")
    assert "are not quantized, and at load they can become w8a8_int8, q8_0" in refused(
        folder, "fp8"
    )


def test_what_a_model_has_is_accepted_by_name(tmp_path):
    gptq, _ = schemes.write_pair(tmp_path / "a", schemes.SCHEMES["gptq4"], tied=False)
    file = write_tiny(tmp_path, "q4_0", layers=1)
    for path, name in ((gptq, "gptq"), (file, "gguf"), (file, "q4_0")):
        with started(path, quantization=name) as offline:
            assert offline.info.quantization == name


def test_rows_that_fill_no_blocks_are_refused_by_the_weights_name(tmp_path):
    odd = write_tiny(tmp_path, "bfloat16", layers=1, intermediate=120)
    said = refused(odd, "q4_0")
    assert "weight 'layers.0.down': its rows of 120 elements are no whole blocks of 32" in said
    with started(odd, quantization="w8a8_int8") as offline:
        assert offline.info.weights["w8a8"] > 0


def test_what_cannot_be_quantized_names_its_tensor(tmp_path):
    path = write_family(tmp_path, MIXTURE, "float32")
    tensors = load_file(path / "model.safetensors")
    name = "model.layers.0.self_attn.k_proj.weight"
    tensors[name][2, 3] = float("nan")
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"'{name}': has values that are infinite or not"):
        LoadedModel(config(path, quantization="q8_0"))
