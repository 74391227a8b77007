"""Hugging Face folders and safetensors files: what is refused, and how it is said."""

from __future__ import annotations

import json
import random
import struct

import pytest

import tiny_models as tiny
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.safetensors_file import SafetensorsFile

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(tmp_path):
    return tiny.make_hf_folder(tmp_path, shards=3, tied=False)


def write_safetensors(path, header, data=b"\0" * 64):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def row(shape, first, last, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


def edit_index(folder, edit):
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_missing_shard_is_named(sharded):
    gone = sorted(sharded.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(CheckpointError, match=gone.name):
        open_checkpoint(sharded)


def test_missing_tensor_is_named(sharded):
    edit_index(sharded, lambda names: names.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight.*missing"):
        open_checkpoint(sharded)


def test_tensor_listed_in_the_wrong_shard_is_named(sharded):
    def edit(names):
        others = set(names.values()) - {names["model.norm.weight"]}
        names["model.norm.weight"] = min(others)

    edit_index(sharded, edit)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight.*not in this file"):
        open_checkpoint(sharded)


LONG = "x" * 5000 + ".safetensors"


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/x.safetensors", "a\\b.safetensors", "x.bin", "", 3, None, LONG]
)
def test_shards_lie_in_the_folder(sharded, name):
    edit_index(sharded, lambda names: names.update({"lm_head.weight": name}))
    with pytest.raises(CheckpointError, match=r"must be a \.safetensors file in the folder"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt"])
def test_pickles_are_refused_with_the_reason(tmp_path, name):
    tiny.make_hf_folder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(UnsupportedModel, match=rf"{name}.*run code"):
        open_checkpoint(tmp_path)


def test_no_weights_at_all(tmp_path):
    tiny.make_hf_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"a": 1, "a": 2}', '{"a": "\udcff"}']
)
def test_broken_config_json(tmp_path, text):
    tiny.make_hf_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


def test_truncated_file_names_the_tensor(tmp_path):
    tiny.make_hf_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight.*cut off"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"abc", b"\xff" * 8, struct.pack("<Q", 1 << 40) + b"{}"])
def test_not_a_safetensors_file(tmp_path, raw):
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"empty|not a safetensors file"):
        SafetensorsFile(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": row([4], 0, 16), "b": row([4], 8, 24)}, "tensor 'b'.*shares bytes with tensor 'a'"),
        ({"a": row([4], 56, 72)}, "cut off"),
        ({"a": row([4], 16, 0)}, "cut off"),
        ({"a": row([5], 0, 16)}, "needs 20 bytes, has 16"),
        ({"a": row([1 << 61, 1 << 61], 0, 16)}, "needs"),
        ({"a": row([-4], 0, 16)}, "sound dtype, shape"),
        ({"a": row([True], 0, 4)}, "sound dtype, shape"),
        ({"a": row([1] * 99, 0, 4)}, "sound dtype, shape"),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0]}}, "1 numbers"),
        ({"a": {"dtype": 3, "shape": [4], "data_offsets": [0, 16]}}, "sound dtype, shape"),
        ({"a": []}, "sound dtype, shape"),
        (b'{"a": {}, "a": {}}', "appears twice"),
        (b"[1]", "not a JSON object"),
        (b"{nonsense", "not valid JSON"),
    ],
)
def test_unsound_headers(tmp_path, header, message):
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFile(write_safetensors(tmp_path / "x.safetensors", header))


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I64", "F4"])
def test_other_dtypes_are_refused_by_name_when_needed(tmp_path, dtype):
    header = {"a": row([2], 0, 16 if dtype == "I64" else 2, dtype), "b": row([4], 16, 32)}
    file = SafetensorsFile(write_safetensors(tmp_path / "x.safetensors", header))
    assert file.read("b").shape == (4,)
    with pytest.raises(UnsupportedModel, match=f"'a': format {dtype}.*float32"):
        file.read("a")


def test_flipped_header_bytes_only_give_checkpoint_errors(tmp_path):
    path = tiny.make_hf_folder(tmp_path) / "model.safetensors"
    sound = path.read_bytes()
    end = 8 + int.from_bytes(sound[:8], "little")
    rng = random.Random(7)
    refused = 0
    for _ in range(300):
        raw = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(end)] = rng.randrange(256)
        path.write_bytes(raw)
        try:
            checkpoint = open_checkpoint(tmp_path)
            for source in checkpoint.sources:
                checkpoint.read(source)
        except CheckpointError:
            refused += 1
    assert refused > 100
