"""Tiny models: complete GGUF files, quantized as the gguf package does, read back by both."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from answers.equality import config, greedy
from anychip.contract.formats import BLOCK_FORMATS
from anychip.contract.weights import HostWeight
from anychip.engine.offline import OfflineEngine
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import dequantize, plain_weight
from anychip.model.gguf import GgufFile, read_gguf_metadata
from anychip.model.gguf_writer import write_gguf
from anychip.model.quantize import quantize
from anychip.model.tiny import END, SPECIAL, TinySizes, write_tiny
from anychip.text.gguf_tokenizer import open_gguf_tokenizer

FORMATS = ("float32", "float16", "bfloat16", "q8_0", "q4_0", "q4_1")
PLAIN = FORMATS[:3]
ALL_FORMATS = (*PLAIN, *BLOCK_FORMATS)


def values(rows: int = 40) -> np.ndarray:
    """Blocks of many scales, one of them all zeros, one of a single value."""
    drawn = np.random.default_rng(7).standard_normal((rows, 64), np.float32)
    drawn *= np.logspace(-3, 2, rows, dtype=np.float32)[:, None]
    drawn[3], drawn[4] = 0, 0.25
    return drawn


ENCODED_BY_GGUF = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4")


@pytest.mark.parametrize("format", ENCODED_BY_GGUF)
def test_blocks_are_those_of_the_gguf_package(format):
    from gguf import GGMLQuantizationType, quants

    given = values()
    ours = quantize(given, format)
    theirs = quants.quantize(given, GGMLQuantizationType[format.upper()])
    assert ours.shape == given.shape
    assert bytes(ours.data) == theirs.tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_every_element_is_within_half_a_step(format):
    given = values()
    back = dequantize(quantize(given, format))
    blocks = np.abs(given.reshape(-1, 32))
    spread = np.ptp(given.reshape(-1, 32), axis=1)
    # half a step, and the rounding of the float16 scale (of 8 or 15 steps) itself
    step = {"q8_0": blocks.max(1) / 127, "q4_0": blocks.max(1) / 8, "q4_1": spread / 15}
    allowed = step.get(format, blocks.max(1) * 2.0**-7) * (0.51 if format in PLAIN else 0.56)
    if format == "q4_0":  # the value opposite to the largest one has no step of its own
        allowed = allowed * 2
    allowed = allowed + np.abs(given).reshape(-1, 32).max(1) * 2.0**-11
    assert (np.abs(back - given).reshape(-1, 32).max(1) <= allowed + 1e-12).all()


def test_a_format_or_a_width_that_cannot_be_is_refused():
    with pytest.raises(UnsupportedModel, match="q8_K"):
        quantize(values(), "q8_K")
    with pytest.raises(CheckpointError, match="rows of 20 elements do not fill blocks of 32"):
        quantize(np.zeros((2, 20), np.float32), "q4_0")


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_the_gguf_package_reads_the_same_metadata_and_tensors(format, tmp_path):
    from gguf import GGUFReader

    path = write_tiny(tmp_path, format, layers=1, hidden=256, head_dim=64, intermediate=256)
    theirs = GGUFReader(path)
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert read_gguf_metadata(path) == fields
    file = GgufFile(path)
    assert list(file.tensors) == [t.name for t in theirs.tensors]
    for tensor in theirs.tensors:
        weight = file.read(tensor.name)
        assert weight.shape == tuple(tensor.shape.tolist())[::-1]
        assert bytes(weight.data) == tensor.data.tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_matrices_have_the_format_and_norms_are_float32(format, tmp_path):
    file = GgufFile(write_tiny(tmp_path, format))
    formats = {len(entry.shape): set() for entry in file.tensors.values()}
    for entry in file.tensors.values():
        formats[len(entry.shape)].add(entry.format)
    assert formats == {1: {"float32"}, 2: {format}}


def test_all_sizes_reach_the_model(tmp_path):
    wanted = TinySizes(3, 96, 6, 3, 20, 160, 1200, 512, 5, 1)
    found = open_checkpoint(write_tiny(tmp_path, **dataclasses.asdict(wanted))).config
    assert found.layers == wanted.layers
    assert found.hidden_size == wanted.hidden
    assert (found.heads, found.kv_heads, found.head_dim) == (6, 3, 20)
    assert found.intermediate_size == wanted.intermediate
    assert found.vocab_size == wanted.vocabulary
    assert found.context_length == wanted.context
    assert found.tie_embeddings
    assert found.eos_ids == (END,)


def test_fewer_layers_are_the_same_model_cut_and_seeds_differ(tmp_path):
    whole = GgufFile(write_tiny(tmp_path))
    cut = GgufFile(write_tiny(tmp_path, layers=1))
    other = GgufFile(write_tiny(tmp_path, seed=1))
    assert set(cut.tensors) < set(whole.tensors)
    for name in cut.tensors:
        assert bytes(cut.read(name).data) == bytes(whole.read(name).data)
        assert bytes(other.read(name).data) != bytes(whole.read(name).data)


def test_files_of_different_models_have_different_names(tmp_path):
    for changes in ({}, {"seed": 1}, {"layers": 1}, {"tied": 1}):
        write_tiny(tmp_path, **changes)
    write_tiny(tmp_path, "q8_0")
    write_tiny(tmp_path, "q8_0")
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("vocabulary", [259, 260, 384, 1200])
def test_any_text_survives_the_tokenizer(vocabulary, tmp_path):
    tokenizer = open_gguf_tokenizer(write_tiny(tmp_path, vocabulary=vocabulary))
    text = "hello a World\n\tGrüße, 世界 \x00 the end"
    assert tokenizer.vocab_size == vocabulary
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(SPECIAL[1] + "a") == [1, tokenizer.encode("a")[0]]
    assert "<|im_start|>" in tokenizer.chat_template


def test_too_small_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"vocabulary of 258: .* are 259"):
        write_tiny(tmp_path, vocabulary=258)
    with pytest.raises(TypeError, match="lairs"):
        write_tiny(tmp_path, lairs=2)


def test_greedy_output_varies_and_follows_the_prompt(tmp_path):
    with OfflineEngine(config(write_tiny(tmp_path), backend="fake")) as offline:
        first, second = offline.generate([[107, 104, 111], [5, 100, 200]], greedy(24))
    assert len(set(first.token_ids)) > 6
    assert len(set(second.token_ids)) > 6
    assert first.token_ids != second.token_ids


def test_generate_answers_from_the_file(tmp_path, capfd):
    from anychip.__main__ import main

    path = write_tiny(tmp_path, "q4_1")
    flags = ["--prompt", "hello", "--backend", "fake", "--max-total-tokens", "512"]
    code = main(["generate", "--model-path", str(path), *flags, "--max-new-tokens", "8"])
    assert code == 0
    assert capfd.readouterr().out.strip()


def test_an_open_file_survives_being_written_anew(tmp_path):
    path = write_tiny(tmp_path)
    file = GgufFile(path)
    before = bytes(file.read("output.weight").data)
    write_tiny(tmp_path)
    assert bytes(file.read("output.weight").data) == before
    assert list(tmp_path.iterdir()) == [path]


def weight(format: str = "float32") -> dict[str, HostWeight]:
    return {"w": dataclasses.replace(plain_weight(np.zeros(4, np.float32)), format=format)}


def test_settings_of_every_kind_come_back(tmp_path):
    settings = {
        "text": "ä",
        "yes": True,
        "number": -3,
        "count": 1 << 31,
        "real": 0.5,
        "texts": ["a", ""],
        "none": [],
        "flags": [True, False],
        "numbers": [1, -2],
        "reals": [0.25],
    }
    write_gguf(tmp_path / "x.gguf", settings, weight())
    assert read_gguf_metadata(tmp_path / "x.gguf") == settings


def test_a_size_is_written_as_llama_cpp_wants_it(tmp_path):
    gguf = pytest.importorskip("gguf")
    write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama", "n": 3, "m": -3}, weight())
    fields = gguf.GGUFReader(tmp_path / "x.gguf").fields
    kinds = gguf.GGUFValueType
    assert [fields[key].types for key in ("n", "m")] == [[kinds.UINT32], [kinds.INT32]]


@pytest.mark.parametrize(
    ("settings", "format", "message"),
    [
        ({"n": 1 << 32}, "float32", "'n': 4294967296 does not fit"),
        ({"n": [1 << 31]}, "float32", "'n': .2147483648. does not fit"),
        ({"l": [1, "a"]}, "float32", "'l': .* mixes kinds"),
        ({}, "u4g64", "'w': u4g64 cannot be written"),
    ],
)
def test_what_the_file_cannot_hold_is_refused(settings, format, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_gguf(tmp_path / "x.gguf", settings, weight(format))
    assert not list(tmp_path.iterdir())
