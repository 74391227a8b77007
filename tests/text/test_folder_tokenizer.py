from __future__ import annotations

import json

import pytest
from text_samples import TEXTS, train_byte_level
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

import tiny_models as tiny
from anychip.text.errors import TokenizerFileError
from anychip.text.load import open_tokenizer


def write_folder(folder, core, **files):
    core.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def byte_level():
    core = train_byte_level()
    core.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    core.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return core


CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": {"content": "<|end|>", "__type": "AddedToken"},
}


def with_bos(core):
    bos = core.token_to_id("<s>")
    core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", bos)])
    return core


@pytest.mark.parametrize(
    ("core", "stated"),
    [
        (byte_level(), {}),
        (with_bos(byte_level()), {}),
        (with_bos(byte_level()), {"add_bos_token": False}),
        (byte_level(), {"add_bos_token": True, "add_eos_token": True}),
    ],
    ids=["plain", "bos-in-json", "bos-forbidden", "bos-and-eos-stated"],
)
def test_ids_and_text_equal_transformers(tmp_path, core, stated):
    from transformers import AutoTokenizer

    write_folder(tmp_path, core, tokenizer_config={**CONFIG, **stated})
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), open_tokenizer(tmp_path)
    for text in [*TEXTS, "<s>a<think>b<|end|>"]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert ours.encode(text, False) == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, False) == theirs.decode(ids, skip_special_tokens=False)
    assert ours.bos_id == theirs.bos_token_id
    assert ours.vocab_size == len(theirs)


def test_saved_truncation_and_padding_are_ignored(tmp_path):
    core = byte_level()
    core.enable_truncation(4)
    core.enable_padding(length=8)
    tokenizer = open_tokenizer(write_folder(tmp_path, core))
    assert (
        tokenizer.decode(tokenizer.encode("no cut, no padding here")) == "no cut, no padding here"
    )


def sentencepiece_like(strip=True):
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["<unk>", *bytes_, "▁", "h", "i", "▁h", "▁hi"]
    merges = [("▁", "h"), ("▁h", "i")]
    vocab = {word: index for index, word in enumerate(words)}
    core = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    return core


@pytest.mark.parametrize("strip", [True, False])
def test_sentencepiece_folder_decodes_as_the_library(tmp_path, strip):
    core = sentencepiece_like(strip)
    tokenizer = open_tokenizer(write_folder(tmp_path, core))
    for text in ["hi hi", "  hi", "é🤖 hi\n"]:
        ids = tokenizer.encode(text)
        assert ids == core.encode(text).ids
        assert tokenizer.decode(ids) == core.decode(ids)


def test_unknown_decoder_is_refused(tmp_path):
    core = train_byte_level()
    core.decoder = decoders.WordPiece()
    with pytest.raises(TokenizerFileError, match=r"WordPiece.*known are ByteLevel"):
        open_tokenizer(write_folder(tmp_path, core))


def test_every_end_token_that_the_folder_names(tmp_path):
    write_folder(
        tmp_path,
        byte_level(),
        tokenizer_config=CONFIG,
        generation_config={"eos_token_id": [5, 6]},
        config={"eos_token_id": 7},
    )
    assert open_tokenizer(tmp_path).eos_ids == {0, 5, 6, 7}


def test_named_tokens_fall_back_to_special_tokens_map(tmp_path):
    write_folder(tmp_path, byte_level(), special_tokens_map={"eos_token": "<|end|>"})
    tokenizer = open_tokenizer(tmp_path)
    assert tokenizer.special_tokens == {"eos_token": "<|end|>"} and tokenizer.eos_ids == {0}


TEMPLATES = {
    "text": ("one", "one"),
    "named": ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
    "no default": ([{"name": "tool_use", "template": "t"}], "t"),
    "none": (None, None),
}


@pytest.mark.parametrize("case", TEMPLATES)
def test_template_is_found(tmp_path, case):
    stated, expected = TEMPLATES[case]
    write_folder(tmp_path, byte_level(), tokenizer_config={"chat_template": stated})
    assert open_tokenizer(tmp_path).chat_template == expected
    (tmp_path / "chat_template.jinja").write_text("file")
    assert open_tokenizer(tmp_path).chat_template == "file"


def test_path_may_be_the_file_or_a_folder_with_one_gguf(tmp_path, demo_model):
    write_folder(tmp_path, byte_level())
    assert open_tokenizer(tmp_path / "tokenizer.json").encode("a")
    other = tmp_path / "other"
    other.mkdir()
    (other / "m.gguf").symlink_to(demo_model)
    assert open_tokenizer(other).vocab_size == 49152


def broken_json(folder):
    (folder / "tokenizer.json").write_text("{")
    return folder


def broken_config(folder):
    write_folder(folder, byte_level())
    (folder / "tokenizer_config.json").write_text("[1]")
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "absent", "no such file or folder"),
        (lambda folder: folder, "no tokenizer.json"),
        (broken_json, "cannot be read as a tokenizer"),
        (broken_config, "must hold a JSON object, not list"),
    ],
)
def test_broken_files_are_named(tmp_path, make, message):
    with pytest.raises(TokenizerFileError, match=message) as caught:
        open_tokenizer(make(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "generation_config.json",
        "config.json",
        "chat_template.jinja",
    ],
)
def test_a_link_to_nothing_is_no_absent_file(tmp_path, name):
    """As a hub's cache leaves where the blob was deleted."""
    tiny.write_tokenizer(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "blobs" / "gone")
    with pytest.raises(TokenizerFileError, match="is a link to nothing; fetch the model again"):
        open_tokenizer(tmp_path)


def test_another_file_is_refused(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(TokenizerFileError, match="no tokenizer known here"):
        open_tokenizer(tmp_path / "tokenizer.model")
