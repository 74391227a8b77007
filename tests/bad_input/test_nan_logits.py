"""A model with a weight that is NaN: an error that says so, not an empty answer or a dead chip."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

import tiny_models
from anychip.__main__ import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The tiny model; the weight of its last norm is NaN in one place."""
    whole = tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))
    model = Path(shutil.copytree(whole, tmp_path_factory.mktemp("nan") / "model"))
    tensors = load_file(model / "model.safetensors")
    tensors["model.norm.weight"][5] = float("nan")
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    return model


@pytest.mark.parametrize("temperature", ["0", "0.8"])
@pytest.mark.parametrize(
    "chip",
    [("cpu",), ("cpu", "kernels=host"), ("fake",), ("fake", "primitives_only=true")],
    ids=" ".join,
)
def test_it_is_told_and_nothing_is_answered(folder, capsys, chip, temperature):
    backend, *options = chip
    words = ["generate", "--model-path", str(folder), "--backend", backend, "--json"]
    words += ["--prompt", "a", "--prompt", "a long enough prompt of several pages"]
    words += [word for option in options for word in ("--chip-option", option)]
    words += ["--temperature", temperature, "--top-p", "0.9", "--max-tokens", "4"]
    assert main([*words, "--max-total-tokens", "512", "--log-level", "error"]) == 1
    told = capsys.readouterr()
    assert told.out.count('"token_ids":[]') == 2 and told.out.count('"finish":"error"') == 2
    assert "the model's logits are not numbers (NaN): its weights are damaged" in told.err
    assert "--dtype float32" in told.err and "Traceback" not in told.err
