"""Loading: each file from its start to its end, little host memory beside the chip's, progress."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anychip.config import ServeConfig
from anychip.model.formats import dequantize
from anychip.model.tiny import write_tiny
from anychip.run.plan_run import open_run
from anychip.run.weights import load_weights, reading_order, visits
from plain_folder import SHARDS, tensors, write_folder
from served import ENVIRONMENT

CHILD = Path(__file__).with_name("loading_child.py")


def load(folder: Path, *more: str) -> dict:
    words = [sys.executable, str(CHILD), str(folder), "fake", "float32", *more]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def beside(measured: dict) -> int:
    """Bytes beside the chip's own."""
    return measured["peak"] - measured["chip"]


@pytest.mark.parametrize(("dtype", "layers"), [("float32", 8), ("float16", 16)])
def test_host_memory_beside_the_chips_stays_under_the_largest_shard(tmp_path, dtype, layers):
    """Four shards of 30 MB, which show in the memory of a process."""
    folder = write_folder(tmp_path, 512, 2048, layers, np.dtype(dtype).type)
    shard = max(path.stat().st_size for path in folder.glob("*.safetensors"))
    measured = load(folder)
    text = f"{beside(measured) / 2**20:.1f} MiB beside the chip's {measured['chip'] / 2**20:.0f}"
    print(f"{dtype}: {text}; the largest shard: {shard / 2**20:.1f}")
    assert beside(measured) < 1.2 * shard
    # The measure sees files' pages: a loader that keeps them is far above.
    careless = load(folder, "hoard")
    assert careless["chip"] == measured["chip"]
    assert beside(careless) > 2 * shard

    dones = [done for done, _ in measured["amounts"]]
    assert dones == sorted(dones) and len(set(dones)) > 4 * layers
    total = np.dtype(dtype).itemsize * sum(map(np.prod, tensors(512, 2048, layers).values()))
    assert measured["amounts"][-1] == [total, total]


def test_gguf_blocks_are_converted_without_a_copy_of_the_file(tmp_path):
    """One file is one shard; on this chip 8-bit blocks become float32, four times as large."""
    file = write_tiny(tmp_path, "q8_0", hidden=512, intermediate=2048, layers=10, heads=8)
    measured = load(file)
    assert measured["chip"] > 3.5 * file.stat().st_size
    print(f"{beside(measured) / 2**20:.1f} MiB beside, file {file.stat().st_size / 2**20:.1f}")
    assert beside(measured) < 1.2 * file.stat().st_size


@pytest.fixture
def opened(tmp_path):
    folder = write_folder(tmp_path, 64, 128, 4, np.float32)
    config = ServeConfig(model_path=str(folder), backend="fake", context_length=64)
    opened = open_run(config)
    yield opened
    opened.close()


def test_files_are_read_one_after_another_from_start_to_end(opened):
    order = reading_order(opened.checkpoint, opened.plan)
    sources = [getattr(item, "source", item) for item in order]
    firsts = [min(opened.checkpoint.places(source)) for source in sources]
    assert firsts == sorted(firsts)
    assert {s.name for s in sources} == {s.name for s in opened.checkpoint.sources}
    # As the network meets them they would be read to and fro: the output comes last there.
    told = [min(opened.checkpoint.places(source)) for source in opened.checkpoint.sources]
    assert told != sorted(told)


def test_visits_tell_of_weights_whose_parts_lie_apart(opened):
    found = visits(opened.checkpoint, opened.plan)
    assert sorted(set(found)) == [f"model-{n + 1:05}-of-{SHARDS:05}.safetensors" for n in range(4)]
    apart = [
        source
        for source in opened.checkpoint.sources
        if len({name for name, _ in opened.checkpoint.places(source)}) > 1
    ]
    assert len(found) <= SHARDS + 2 * len(apart)


def test_weights_are_the_same_in_any_order(opened):
    """What is read in the files' order is what each name stands for."""
    loaded = load_weights(opened.checkpoint, opened.plan, opened.chip, lambda done, total: None)
    for plan in opened.plan.weights:
        dense = loaded.weights[plan.source.name].dense
        found = np.zeros(dense.shape, np.float32)
        opened.chip.memory.copy_out(dense, found.reshape(-1).view(np.uint8).data)
        parts = [dequantize(part) for part in opened.checkpoint.read(plan.source)]
        np.testing.assert_array_equal(found, np.concatenate(parts))
    loaded.release(opened.chip)
    assert opened.chip.memory.info().used == 0
