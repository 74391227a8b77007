"""Checkpoints against transformers' own weights, from folders and from GGUF files."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import tiny_models as tiny
from anychip.contract.weights import WeightUse
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import dequantize
from anychip.model.sources import Part

BLOCK = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4")
JOINED = {
    "attention_norm": ("input_layernorm.weight",),
    "qkv": tuple(f"self_attn.{p}_proj.weight" for p in "qkv"),
    "qkv_bias": tuple(f"self_attn.{p}_proj.bias" for p in "qkv"),
    "attention_output": ("self_attn.o_proj.weight",),
    "attention_output_bias": ("self_attn.o_proj.bias",),
    "mlp_norm": ("post_attention_layernorm.weight",),
    "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "gate_up_bias": ("mlp.gate_proj.bias", "mlp.up_proj.bias"),
    "down": ("mlp.down_proj.weight",),
    "down_bias": ("mlp.down_proj.bias",),
}
OUTER = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}


def reference(model, name):
    """A weight of ours out of transformers' state dict, float32."""
    state = model.state_dict()
    if name in OUTER:
        return state[OUTER[name]].float().numpy()
    layer, inner = name.removeprefix("layers.").split(".")
    parts = [state[f"model.layers.{layer}.{part}"] for part in JOINED[inner]]
    return torch.cat(parts).float().numpy()


def loaded(checkpoint):
    return {
        source.name: np.concatenate([dequantize(part) for part in checkpoint.read(source)])
        for source in checkpoint.sources
    }


def assert_equals_model(checkpoint, model, expected=reference):
    weights = loaded(checkpoint)
    biases = (model.config.attention_bias + model.config.mlp_bias) * 2
    count = 2 + (not model.config.tie_word_embeddings) + tiny.LAYERS * (6 + biases)
    assert len(weights) == count
    for name, values in weights.items():
        np.testing.assert_array_equal(values, expected(model, name), err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("tied", "shards"), [(True, 1), (False, 3)])
def test_folder_holds_the_models_weights(tmp_path, dtype, tied, shards):
    options = {"dtype": dtype, "tied": tied}
    checkpoint = open_checkpoint(tiny.make_hf_folder(tmp_path, shards=shards, **options))
    model = tiny.make_hf_model(**options)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shards > 1)
    assert checkpoint.config.dtype == dtype
    assert checkpoint.total_bytes == sum(p.numel() * p.element_size() for p in model.parameters())
    assert_equals_model(checkpoint, model)


@pytest.mark.parametrize("make", [tiny.make_hf_folder, tiny.make_gguf])
def test_biases(tmp_path, make):
    options = {"attention_bias": True, "mlp_bias": True, "tied": False}
    checkpoint = open_checkpoint(make(tmp_path, **options))
    assert checkpoint.config.attention_bias and checkpoint.config.mlp_bias
    assert_equals_model(checkpoint, tiny.make_hf_model(**options))


@pytest.mark.parametrize("tied", [True, False])
def test_gguf_rows_are_put_back_in_order(tmp_path, tied):
    checkpoint = open_checkpoint(tiny.make_gguf(tmp_path, "f32", tied=tied))
    assert_equals_model(checkpoint, tiny.make_hf_model(tied=tied))
    assert checkpoint.config.dtype == "float32"
    assert checkpoint.config.tie_embeddings == tied


def test_gguf_without_the_row_order_would_differ(tmp_path):
    path = tiny.make_gguf(tmp_path, "f32")
    checkpoint = open_checkpoint(path)
    source = next(s for s in checkpoint.sources if s.name == "layers.0.qkv")
    as_they_lie = tuple(dataclasses.replace(part, permute="none") for part in source.parts)
    raw = checkpoint.read(dataclasses.replace(source, parts=as_they_lie))
    expected = reference(tiny.make_hf_model(), source.name)
    assert not np.array_equal(dequantize(raw[0]), expected[: len(dequantize(raw[0]))])


@pytest.mark.parametrize("format", ["f16", "bf16", *BLOCK])
def test_gguf_formats_equal_the_gguf_packages_reading(tmp_path, format):
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[format.upper()]

    def rounded(model, name):
        values = reference(model, name)
        if values.ndim == 1:
            return values
        return quants.dequantize(quants.quantize(values, kind), kind)

    checkpoint = open_checkpoint(tiny.make_gguf(tmp_path, format))
    assert_equals_model(checkpoint, tiny.make_hf_model(), rounded)
    plain = {"f16": "float16", "bf16": "bfloat16"}
    assert checkpoint.config.dtype == plain.get(format, "quantized")
    assert checkpoint.describe(Part("blk.0.attn_q.weight", (64, 64))) == (
        plain.get(format, format),
        (64, 64),
    )


def test_gguf_equals_transformers_reading_of_it(tmp_path):
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = tiny.make_gguf(tmp_path, "q4_1", embedding_format="q8_0", tied=False)
    model = tiny.make_hf_model(tied=False)
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    weights = loaded(open_checkpoint(path))
    for name, values in weights.items():
        names = [OUTER[name]] if name in OUTER else []
        if not names:
            layer, inner = name.removeprefix("layers.").split(".")
            names = [f"model.layers.{layer}.{part}" for part in JOINED[inner]]
        theirs = np.concatenate([np.asarray(read[n], np.float32) for n in names])
        np.testing.assert_array_equal(values, theirs, err_msg=name)


def test_uses_shapes_and_vectors(tmp_path):
    tied = open_checkpoint(tiny.make_hf_folder(tmp_path / "tied", dtype="bfloat16"))
    untied = open_checkpoint(tiny.make_hf_folder(tmp_path / "untied", tied=False))
    uses = {s.name: s.uses for s in tied.sources}
    assert uses["embedding"] == {WeightUse.EMBEDDING, WeightUse.LM_HEAD}
    assert "lm_head" not in uses
    assert {s.name: s.uses for s in untied.sources}["lm_head"] == {WeightUse.LM_HEAD}
    norm = next(s for s in tied.sources if s.name == "final_norm")
    (weight,) = tied.read(norm)
    assert (norm.uses, weight.format, weight.shape) == (None, "float32", (tiny.HIDDEN,))


def test_tensors_that_the_network_does_not_take_are_told(tmp_path):
    assert open_checkpoint(tiny.make_gguf(tmp_path, rope_scaling=tiny.LLAMA3)).unused == ()
    folder = tiny.make_hf_folder(tmp_path, tied=False)
    config = (folder / "config.json").read_text()
    tied = config.replace('"tie_word_embeddings": false', '"tie_word_embeddings": true')
    (folder / "config.json").write_text(tied)
    assert open_checkpoint(folder).unused == ("lm_head.weight",)


def test_a_missing_gguf_tensor_is_named(tmp_path):
    path = tiny.make_gguf(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_uq.weight"))
    with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up\.weight.*missing"):
        open_checkpoint(path)


def test_matrices_are_views_and_outlive_close(tmp_path):
    checkpoint = open_checkpoint(tiny.make_gguf(tmp_path, "q8_0"))
    source = next(s for s in checkpoint.sources if s.name == "layers.1.down")
    (weight,) = checkpoint.read(source)
    assert weight.data.readonly
    assert type(weight.data.obj).__name__ == "mmap"
    before = bytes(weight.data)
    checkpoint.close()
    assert bytes(weight.data) == before
    with pytest.raises(CheckpointError, match="missing"):
        checkpoint.read(source)


@pytest.mark.parametrize("format", BLOCK)
def test_a_tensor_of_the_wrong_shape_is_named(tmp_path, format):
    path = tiny.make_gguf(tmp_path, format)
    raw = path.read_bytes()
    key = b"llama.feed_forward_length" + (4).to_bytes(4, "little")
    at = raw.index(key) + len(key)
    path.write_bytes(raw[:at] + (96).to_bytes(4, "little") + raw[at + 4 :])
    with pytest.raises(CheckpointError, match=r"ffn_gate.*\(128, 64\).*\(96, 64\)"):
        open_checkpoint(path)


def test_missing_paths_say_what_to_pass(tmp_path):
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="a model of a hub as ORG/NAME"):
        open_checkpoint("HuggingFaceTB/SmolLM2-135M")
    with pytest.raises(CheckpointError, match="folder is empty"):
        open_checkpoint(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"config\.json.*is missing"):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="neither a model folder nor a GGUF"):
        open_checkpoint(tmp_path / "a.txt")


def test_wrong_files_say_what_to_pass(tmp_path):
    path = tiny.make_gguf(tmp_path / "g")
    with pytest.raises(CheckpointError, match=r"pass the file .*tiny-f32\.gguf"):
        open_checkpoint(path.parent)
    folder = tiny.make_hf_folder(tmp_path / "h")
    with pytest.raises(CheckpointError, match="pass the model's folder"):
        open_checkpoint(folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UnsupportedModel, match="run code"):
        open_checkpoint(folder / "pytorch_model.bin")


def test_gguf_is_known_by_its_first_bytes(tmp_path):
    path = tiny.make_gguf(tmp_path)
    blob = path.rename(tmp_path / "0123abcd")
    assert open_checkpoint(blob).config.layers == tiny.LAYERS
