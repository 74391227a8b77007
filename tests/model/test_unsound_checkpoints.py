"""Checkpoints that are not whole, or not of one model: the tensor, the file and the way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from anychip.config import ServeConfig
from anychip.engine.loaded import LoadedModel
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.tiny import write_tiny
from hub_server import folder_files, write_cache
from plain_folder import INDEX, write_folder

LAYERS = 4
DOWN = "model.layers.2.mlp.down_proj.weight"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1234\n"


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("sound"), 64, 128, LAYERS, np.float32)


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    shutil.copytree(sound, tmp_path / "model")
    return tmp_path / "model"


def shard_of(folder: Path, name: str) -> Path:
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][name]


def edit(folder: Path, name: str, change) -> None:
    """Write the shard of a tensor again, as `change` leaves its tensors."""
    path = shard_of(folder, name)
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def edit_json(path: Path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(path: Path, *said: str, kind: type[CheckpointError] = CheckpointError) -> str:
    with pytest.raises(kind) as caught:
        open_checkpoint(path)
    text = str(caught.value)
    for words in said:
        assert words in text
    assert "\n" not in text
    return text


def test_the_folder_is_sound_as_it_is(folder):
    checkpoint = open_checkpoint(folder)
    assert len(checkpoint.sources) == 3 + 6 * LAYERS and not checkpoint.unused
    checkpoint.close()


def test_a_missing_shard(folder):
    shard = shard_of(folder, DOWN)
    shard.unlink()
    refused(
        folder, INDEX, "tensor '", f"its file '{shard.name}' is missing", "fetch the model again"
    )


@pytest.mark.parametrize("place", [".", ".cache/huggingface/download"])
@pytest.mark.parametrize("ending", ["incomplete", "part", "aria2"])
def test_a_shard_that_is_half_downloaded(folder, place, ending):
    shard = shard_of(folder, DOWN)
    half = folder / place / f"{shard.name}.{ending}"
    half.parent.mkdir(parents=True, exist_ok=True)
    shard.rename(half)
    said = f"a download was not finished ({half} is half a file): start it again"
    refused(folder, f"its file '{shard.name}' is missing", said)


def test_a_hubs_snapshot_that_is_half_downloaded(sound, tmp_path):
    files = folder_files(sound)
    shard = shard_of(sound, DOWN).name
    body = files.pop(shard)
    snapshot = write_cache(tmp_path, "org/tiny", files)
    half = snapshot.parent.parent / "blobs" / "0123.4567.incomplete"
    half.write_bytes(body[:1000])
    refused(snapshot, f"its file '{shard}' is missing", f"({half} is half a file)")


@pytest.mark.parametrize("cut", [100, 5000])
def test_a_shard_that_is_cut_off(folder, cut):
    shard = shard_of(folder, DOWN)
    shard.write_bytes(shard.read_bytes()[:-cut])
    refused(
        folder, shard.name, "tensor 'model.layers.", "cut off or damaged; fetch the model again"
    )


def test_a_shard_that_is_cut_off_in_its_header_or_empty(folder):
    shard = shard_of(folder, DOWN)
    shard.write_bytes(shard.read_bytes()[:200])
    refused(folder, shard.name, "or cut off: its header claims", "fetch the model again")
    shard.write_bytes(b"")
    refused(folder, shard.name, "the file is empty; fetch the model again")


@pytest.mark.parametrize("name", ["shard", "model.gguf"])
def test_gits_pointer_in_place_of_a_file(folder, name):
    path = shard_of(folder, DOWN) if name == "shard" else folder / name
    path.write_bytes(LFS)
    opened = folder if name == "shard" else path
    refused(opened, path.name, "Git's pointer to a large file", "`git lfs pull`")


def test_a_tensor_that_the_index_promises_and_its_shard_lacks(folder):
    edit(folder, DOWN, lambda tensors: tensors.pop(DOWN))
    shard = shard_of(folder, DOWN).name
    refused(folder, f"{shard}: tensor '{DOWN}': is listed in {INDEX}", "fetch the model again")


def test_a_tensor_that_the_index_leaves_out(folder):
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    shard = index.pop(DOWN)
    edit_json(folder / INDEX, weight_map=index)
    refused(folder, f"'{DOWN}': is missing", f"{shard} has it, but {INDEX} does not list it")


def test_a_tensor_that_is_nowhere(folder):
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    edit(folder, DOWN, lambda tensors: tensors.pop(DOWN))
    edit_json(folder / INDEX, weight_map={n: f for n, f in index.items() if n != DOWN})
    refused(folder, f"'{DOWN}': is missing", "are not of one model", "fetch the model again")


def test_a_tensor_of_another_shape(folder):
    edit(folder, DOWN, lambda tensors: tensors.update({DOWN: np.zeros((64, 96), np.float32)}))
    shard = shard_of(folder, DOWN).name
    refused(
        folder, f"{shard}: tensor '{DOWN}'", "(64, 96)", "(64, 128)", "fetch both from one place"
    )


def test_a_tensor_of_a_dtype_that_is_not_read(folder):
    edit(folder, DOWN, lambda tensors: tensors.update({DOWN: np.zeros((64, 128), np.int64)}))
    shard = shard_of(folder, DOWN).name
    said = (f"{shard}: tensor '{DOWN}'", "I64", "supported: float32", "convert the model")
    refused(folder, *said, kind=UnsupportedModel)


def test_a_tensor_in_two_shards_counts_where_both_say_the_same(folder):
    other = "model.norm.weight"
    assert shard_of(folder, other) != shard_of(folder, DOWN)
    values = load_file(shard_of(folder, DOWN))[DOWN]
    edit(folder, other, lambda tensors: tensors.update({DOWN: values}))
    open_checkpoint(folder).close()
    edit(folder, other, lambda tensors: tensors.update({DOWN: values + 1}))
    name = shard_of(folder, other).name
    refused(folder, f"{name}: tensor '{DOWN}': is in {shard_of(folder, DOWN).name} too")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": LAYERS + 1}, (f"'model.layers.{LAYERS}.", "is missing")),
        ({"num_hidden_layers": 3}, ("'model.layers.3.", "behind the 3 that the config says")),
        ({"vocab_size": 400}, ("'model.embed_tokens.weight'", "(384, 64)", "(400, 64)")),
        ({"intermediate_size": 256}, (".gate_proj.weight'", "(128, 64)", "(256, 64)")),
        ({"num_key_value_heads": 4}, (".k_proj.weight'", "(16, 64)", "(32, 64)")),
        ({"hidden_size": 32}, ("'model.embed_tokens.weight'", "(384, 64)", "(384, 32)")),
        ({"attention_bias": True}, (".q_proj.bias'", "is missing")),
    ],
)
def test_a_config_of_another_model(folder, changes, said):
    edit_json(folder / "config.json", **changes)
    text = refused(folder, *said)
    assert "not of one model" in text and "fetch" in text


def test_layers_that_predict_further_tokens_are_no_other_model(folder):
    edit_json(folder / "config.json", num_hidden_layers=3, num_nextn_predict_layers=1)
    checkpoint = open_checkpoint(folder)
    assert len(checkpoint.unused) == 9
    checkpoint.close()


def test_a_gguf_file_with_more_layers_than_it_says(tmp_path):
    file = write_tiny(tmp_path, layers=2)
    raw = file.read_bytes()
    at = raw.index(b"llama.block_count") + len(b"llama.block_count") + 4
    assert raw[at] == 2
    file.write_bytes(raw[:at] + b"\x01" + raw[at + 1 :])
    refused(file, f"{file.name}: tensor 'blk.1.", "behind the 1 that the config says")


def test_a_value_that_the_chips_dtype_cannot_hold(folder):
    """Parts of two formats are converted, which is when the value is met."""
    gate, up = DOWN.replace("down", "gate"), DOWN.replace("down", "up")
    large, small = np.full((128, 64), 7e4, np.float32), np.zeros((128, 64), np.float16)
    edit(folder, gate, lambda tensors: tensors.update({gate: large}))
    edit(folder, up, lambda tensors: tensors.update({up: small}))
    config = ServeConfig(model_path=str(folder), backend="fake", dtype="float16", context_length=64)
    with pytest.raises(CheckpointError, match="8192 values are beyond float16's range") as caught:
        LoadedModel(config)
    assert f"tensor '{gate}'" in str(caught.value)
