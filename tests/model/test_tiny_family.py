"""Tiny models of any family from their config.json: folders and GGUF files that are complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anychip.contract.weights import HostWeight
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import dequantize, plain_weight
from anychip.model.quantize import quantize
from anychip.model.safetensors_file import SafetensorsFile
from anychip.model.safetensors_writer import write_safetensors
from anychip.model.sources import LINEAR
from anychip.model.tiny_family import write_family
from anychip.run.reference import reference_logits

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
QWEN = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True}
TOKENS = [5, 7, 11, 13, 17]


def logits_of(path: Path) -> np.ndarray:
    checkpoint = open_checkpoint(path)
    found = reference_logits(checkpoint, checkpoint.config, TOKENS)
    checkpoint.close()
    return found


@pytest.mark.parametrize("format", ["float32", "bfloat16", "float16"])
def test_folder_is_whole_and_transformers_reads_the_same_model(tmp_path: Path, format) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    path = write_family(tmp_path / "m", LLAMA, format)
    assert sorted(file.name for file in path.iterdir()) == ["config.json", "model.safetensors"]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(torch.tensor([TOKENS])).logits[0].numpy()
    ours = logits_of(path)
    assert np.linalg.norm(ours - theirs) < 1e-5 * np.linalg.norm(theirs)


def test_weights_depend_on_seed_and_name_alone(tmp_path: Path) -> None:
    one = logits_of(write_family(tmp_path / "a", LLAMA))
    assert np.array_equal(one, logits_of(write_family(tmp_path / "b", LLAMA)))
    assert not np.allclose(one, logits_of(write_family(tmp_path / "c", LLAMA, seed=1)))


def test_answers_vary_and_norms_and_biases_matter(tmp_path: Path) -> None:
    path = write_family(tmp_path / "m", QWEN)
    checkpoint = open_checkpoint(path)
    found = {source.name: checkpoint.read(source)[0] for source in checkpoint.sources}
    norm = dequantize(found["layers.0.attention_norm"])
    bias = dequantize(found["layers.0.qkv_bias"])
    checkpoint.close()
    assert 0.8 < norm.mean() < 1.2
    assert 0.05 < norm.std() < 0.2
    assert 0.05 < bias.std() < 0.2
    assert len({int(row.argmax()) for row in logits_of(path)}) > 1


def test_norms_that_the_file_holds_less_one_are_about_one(tmp_path: Path) -> None:
    from anychip.model.sources import Part, constant
    from anychip.model.tiny_tensors import tensors_of

    shifted = constant("final_norm", (64,), Part("model.norm.weight", (64,), plus=1.0))
    (weight,) = tensors_of([shifted], "float32", "float32", 0).values()
    assert abs(dequantize(weight).mean()) < 0.1


@pytest.mark.parametrize("settings", [LLAMA, QWEN], ids=["llama", "qwen2"])
@pytest.mark.parametrize("format", ["q8_0", "q4_0"])
def test_gguf_file_is_the_same_model_in_blocks(tmp_path: Path, settings, format: str) -> None:
    path = write_family(tmp_path / "m", settings, format)
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.dtype == "quantized"
    assert checkpoint.unused == ()
    assert checkpoint.config.tie_embeddings == settings.get("tie_word_embeddings", False)
    checkpoint.close()
    assert np.isfinite(logits_of(path)).all()


def test_gguf_metadata_that_say_something_else_are_refused(tmp_path: Path) -> None:
    scaled = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    with pytest.raises(CheckpointError, match=r"its metadata make ropes .*give the GGUF keys"):
        write_family(tmp_path / "m", scaled, "q8_0")
    more = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    path = write_family(tmp_path / "m", scaled, "q8_0", gguf=more)
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.rope.kind == "linear"
    checkpoint.close()


@pytest.mark.parametrize(
    ("settings", "format", "said"),
    [
        (LLAMA, "q8_K", "format of a written model 'q8_K'"),
        (LLAMA, "w8a8_static", "format of a quantized folder 'w8a8_static'"),
        ({**LLAMA, "architectures": ["NoneForCausalLM"]}, "float32", "architecture 'NoneForCaus"),
        ({**LLAMA, "architectures": ["MistralForCausalLM"]}, "q8_0", "a written mistral 'q8_0'"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(tmp_path: Path, settings, format, said) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        write_family(tmp_path / "m", settings, format)


def test_rows_that_do_not_fill_blocks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="rows of 64 elements do not fill blocks of 256"):
        write_family(tmp_path / "m", LLAMA, "q4_k")


@pytest.mark.parametrize("format", ["u4g32", "u8g32", "u4g32o", "w8a8"])
def test_folder_in_fewer_bits_holds_what_the_format_makes_of_the_weights(tmp_path: Path, format):
    path = write_family(tmp_path / "m", LLAMA, format)
    quantized, plain = open_checkpoint(path), open_checkpoint(write_family(tmp_path / "p", LLAMA))
    formats: set[str] = set()
    for source, wanted in zip(quantized.sources, plain.sources, strict=True):
        for found, given in zip(quantized.read(source), plain.read(wanted), strict=True):
            exact = dequantize(given)
            if source.uses == LINEAR:
                assert found.format in (format, "float32")  # parts of several orders are opened
                assert np.array_equal(dequantize(found), dequantize(quantize(exact, format)))
                formats.add(found.format)
            else:
                assert np.allclose(dequantize(found), exact, rtol=2**-7)
    quantized.close()
    plain.close()
    assert format in formats
    assert np.isfinite(logits_of(path)).all()


def test_safetensors_are_read_back_by_us_and_by_the_package(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": plain_weight(values), "y": plain_weight(values[0], "float16")})
    theirs = load_file(path)
    assert np.array_equal(theirs["x"], values)
    assert theirs["y"].dtype == np.float16
    file = SafetensorsFile(path)
    assert np.array_equal(dequantize(file.read("x")), values)
    file.close()


def test_safetensors_have_no_blocks(tmp_path: Path) -> None:
    weight = HostWeight("q8_0", (1, 32), memoryview(bytes(34)))
    with pytest.raises(ValueError, match="x: safetensors has no dtype for q8_0"):
        write_safetensors(tmp_path / "a.safetensors", {"x": weight})
    assert not list(tmp_path.iterdir())
