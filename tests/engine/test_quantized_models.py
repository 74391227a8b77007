"""A quantized folder answers as transformers does with the float32 values that it means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

import quantized_folders as schemes
from answers.equality import Oracle, assert_answers, config, greedy, tiny_prompts
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine
from anychip.model.formats import dequantize, plain_weight
from anychip.model.gguf import GgufFile
from anychip.model.gguf_writer import write_gguf
from anychip.model.tiny import write_tiny

COUNT = 8
PROMPTS = [[5, 70, 99, 123], [300]]
ON_CPU = (
    "gptq4_act_order",
    "gptq4_channel",
    "gptq4_own_orders",
    "gptq8",
    "awq",
    "packed4_asymmetric",
    "packed4_groups_of_16",
    "packed8_channel",
    "fp8_block",
)
"""One of each kind. Not w8a8: a chip that computes in it rounds activations, as is right then."""


def oracle(plain: Path) -> Oracle:
    return Oracle(LlamaForCausalLM.from_pretrained(plain, dtype=torch.float32).eval())


def table_of(lines: list[str]) -> dict[str, str]:
    """Format -> how it is computed, out of the start-up log."""
    (table,) = (line for line in lines if line.startswith("weights:"))
    rows = (re.split(" {2,}", row.strip()) for row in table.split("\n")[2:])
    return {row[0]: row[-1] for row in rows}


@pytest.mark.parametrize(
    ("backend", "name"),
    [("fake", name) for name in schemes.SCHEMES] + [("cpu", name) for name in ON_CPU],
)
def test_answers_are_those_of_the_values_that_are_meant(name, backend, tmp_path):
    scheme = schemes.SCHEMES[name]
    quantized, plain = schemes.write_pair(tmp_path, scheme, tied=False)
    lines: list[str] = []
    chosen = config(quantized, backend=backend, dtype="float32")
    with OfflineEngine(chosen, lines.append) as engine:
        assert_answers(engine, oracle(plain), tiny_prompts()[1:4], COUNT)
    table = table_of(lines)
    if backend == "fake":
        assert table.pop("float32") == "as it is"
        assert set(table.values()) == {"converted to float32 at load"}


def test_a_wrong_order_of_numbers_in_a_word_is_seen(tmp_path):
    quantized, _ = schemes.write_pair(tmp_path, schemes.SCHEMES["awq"], tied=False)

    def in_plain_order(tensors: schemes.Tensors) -> None:
        """As if AWQ's numbers lay in the order of the columns: two swapped in each word."""
        for name, words in tensors.items():
            if name.endswith("k_proj.qweight"):
                swapped = (words & ~0xFF0) | (words & 0xF0) << 4 | (words & 0xF00) >> 4
                tensors[name] = swapped.contiguous()

    with OfflineEngine(config(quantized, backend="fake", dtype="float32")) as engine:
        right = [c.token_ids for c in engine.generate(tiny_prompts(), greedy(COUNT))]
    schemes.edit_tensors(quantized, in_plain_order)
    with OfflineEngine(config(quantized, backend="fake", dtype="float32")) as engine:
        wrong = [c.token_ids for c in engine.generate(tiny_prompts(), greedy(COUNT))]
    assert right != wrong


def test_what_is_broken_stops_the_start_with_its_name(tmp_path):
    quantized, _ = schemes.write_pair(tmp_path, schemes.SCHEMES["gptq4"], tied=False)
    gone = "model.layers.1.mlp.up_proj.scales"
    schemes.edit_tensors(quantized, lambda tensors: tensors.pop(gone))
    with pytest.raises(StartError, match=rf"'{gone}': is missing"):
        OfflineEngine(config(quantized, backend="fake"))


@pytest.mark.parametrize("format", ["q3_k", "q6_k", "iq4_nl"])
def test_a_file_in_blocks_answers_as_one_in_float32(format, tmp_path):
    """The others are alike: bit for bit what the gguf package reads of them."""
    path = write_tiny(tmp_path, format, layers=1, hidden=256, head_dim=64, intermediate=256)
    file, plain = GgufFile(path), tmp_path / "plain.gguf"
    weights = {name: plain_weight(dequantize(file.read(name))) for name in file.tensors}
    write_gguf(plain, file.metadata, weights)
    found = []
    for model in (path, plain):
        with OfflineEngine(config(model, backend="fake", dtype="float32")) as engine:
            found.append([c.token_ids for c in engine.generate(PROMPTS, greedy(COUNT))])
    assert found[0] == found[1]
