"""The files that the peers are given hold the same model."""

from __future__ import annotations

import numpy as np
import pytest
from bf16_folder import convert
from gguf_widths import FORMATS, write
from race.machine import read_rate
from race.roofline import work_of

import tiny_models
from anychip.model.checkpoint import open_checkpoint
from anychip.model.formats import dequantize
from anychip.ops.check import relative_l2
from anychip.text.load import open_tokenizer

WIDEST = {"BF16": 2.0**-8, "Q8_0": 2.0**-6}
"""Relative L2 that rounding to a format may cost here."""

NAMES = {"BF16": "bfloat16", "Q8_0": "q8_0"}
"""What a checkpoint calls each format."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return tiny_models.make_gguf(tmp_path_factory.mktemp("source"), "q4_1")


def weights(path) -> dict[str, np.ndarray]:
    checkpoint = open_checkpoint(path)
    try:
        return {
            source.name: np.concatenate([dequantize(part) for part in checkpoint.read(source)])
            for source in checkpoint.sources
        }
    finally:
        checkpoint.close()


@pytest.mark.parametrize("format", FORMATS)
def test_other_widths_hold_the_same_model(source, tmp_path, format) -> None:
    target = tmp_path / f"{format}.gguf"
    written = write(source, target, format)
    assert written < target.stat().st_size
    first, second = open_checkpoint(source), open_checkpoint(target)
    matrices = [s for s in second.sources if s.uses is not None]
    assert {second.describe(p)[0] for s in matrices for p in s.parts} == {NAMES[format]}
    assert [s.name for s in first.sources] == [s.name for s in second.sources]
    assert first.config.rope == second.config.rope and first.config.eos_ids
    first.close(), second.close()
    found = weights(target)
    for name, wanted in weights(source).items():
        assert relative_l2(wanted, found[name]) <= WIDEST[format], name


@pytest.mark.parametrize("format", FORMATS)
def test_settings_keep_their_values_and_types(source, tmp_path, format) -> None:
    """llama.cpp refuses a setting of another type."""
    from gguf import GGUFReader

    write(source, tmp_path / "other.gguf", format)
    old, new = (GGUFReader(path).fields for path in (source, tmp_path / "other.gguf"))
    assert set(old) <= set(new)
    for key in set(old) - {"general.file_type", "GGUF.kv_count"}:
        assert new[key].types == old[key].types, key
        assert new[key].contents() == old[key].contents(), key


def test_text_is_encoded_alike(source, tmp_path) -> None:
    write(source, tmp_path / "Q8_0.gguf", "Q8_0")
    text = "The quick brown fox, 1234."
    ids = open_tokenizer(source).encode(text)
    assert ids and ids == open_tokenizer(tmp_path / "Q8_0.gguf").encode(text)


def test_a_folder_in_bfloat16_holds_the_rounded_weights(source, tmp_path) -> None:
    convert(source, tmp_path / "folder")
    found = open_checkpoint(tmp_path / "folder")
    assert found.config.dtype == "bfloat16"
    found.close()
    for name, wanted in weights(source).items():
        got = weights(tmp_path / "folder")[name]
        assert relative_l2(wanted, got) <= WIDEST["BF16"], name


def test_work_of_a_model_is_counted_from_its_sizes(source) -> None:
    work = work_of(source)
    m = tiny_models
    inner = m.HEADS * m.HEAD_DIM
    layer = m.HIDDEN * (2 * inner + 2 * m.KV_HEADS * m.HEAD_DIM + 3 * m.INTERMEDIATE)
    assert work.linear == 2 * m.LAYERS * layer
    assert work.head == 2 * m.VOCAB * m.HIDDEN
    assert work.attention == 4 * m.LAYERS * inner
    assert work.cache_bytes == 2 * 2 * m.LAYERS * m.KV_HEADS * m.HEAD_DIM
    elements = m.LAYERS * layer + m.VOCAB * m.HIDDEN
    assert work.weight_bytes == elements * 20 // 32  # 20 bytes for 32 elements in Q4_1


def test_what_is_made_at_load_is_counted_as_made(tmp_path) -> None:
    folder = tiny_models.make_hf_folder(tmp_path, dtype="bfloat16")
    plain, made, blocks = (work_of(folder, name) for name in (None, "w8a8_int8", "q8_0"))
    m, linear = tiny_models, plain.linear // 2
    table = 2 * m.VOCAB * m.HIDDEN
    assert plain.weight_bytes == table + 2 * linear
    rows = (m.HEADS + 2 * m.KV_HEADS) * m.HEAD_DIM + 2 * m.HIDDEN + 2 * m.INTERMEDIATE
    assert made.weight_bytes == table + linear + m.LAYERS * 4 * rows
    assert blocks.weight_bytes == table + linear * 34 // 32
    assert [work.int8 for work in (plain, made, blocks)] == [False, True, False]
    assert made.linear_flops == plain.linear_flops // 2


def test_a_table_that_only_embeds_is_not_read_for_a_token(tmp_path) -> None:
    tied, untied = (
        work_of(tiny_models.make_hf_folder(tmp_path / str(tied), tied=tied, dtype="bfloat16"))
        for tied in (True, False)
    )
    assert tied.weight_bytes == untied.weight_bytes


def test_rates_are_measured() -> None:
    rate, reduction = read_rate(1 << 20, 2)
    assert rate > 0 and reduction
