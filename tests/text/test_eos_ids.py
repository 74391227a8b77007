"""End tokens without the tokenizer: the same as the opened tokenizer's."""

from __future__ import annotations

import json

import pytest
from text_samples import train_byte_level
from tokenizers import AddedToken, Tokenizer, models

import tiny_models as tiny
from anychip.text import eos
from anychip.text.eos import read_eos_ids
from anychip.text.errors import TokenizerFileError
from anychip.text.load import open_tokenizer


def added():
    core = train_byte_level()
    core.add_special_tokens([AddedToken("<end é>", special=True, normalized=False)])
    return core


def folder_of(path, core, eos_token, **files):
    core.save(str(path / "tokenizer.json"))
    config = {} if eos_token is None else {"eos_token": eos_token}
    for name, value in {"tokenizer_config": config, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("named", [None, "<end é>", "a", "no such token"])
@pytest.mark.parametrize("head", [None, 64], ids=["whole", "cut"])
def test_a_folders_are_those_of_its_tokenizer(tmp_path, monkeypatch, named, head):
    if head is not None:
        monkeypatch.setattr(eos, "_HEAD", head)  # the added tokens are cut off: all is read
    listed = {"generation_config": {"eos_token_id": [5, 6]}, "config": {"eos_token_id": 7}}
    folder = folder_of(tmp_path, added(), named, **listed)
    found = read_eos_ids(folder)
    assert found == open_tokenizer(folder).eos_ids == read_eos_ids(folder / "tokenizer.json")
    assert len(found) == 3 + (named in ("<end é>", "a"))


def test_a_unigram_vocabulary_is_a_list(tmp_path):
    core = Tokenizer(models.Unigram([("<unk>", 0.0), ("x", -1.0), ("</s>", -2.0)], unk_id=0))
    assert read_eos_ids(folder_of(tmp_path, core, "</s>")) == {2}


def test_a_text_about_added_tokens_is_not_them(tmp_path):
    core = Tokenizer(models.WordLevel({'"added_tokens": [1]': 0, "</s>": 1}, unk_token="</s>"))
    whole = json.loads(core.to_str())
    del whole["added_tokens"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    assert read_eos_ids(tmp_path) == {1}


def test_a_gguf_files_are_those_of_its_tokenizer(tmp_path):
    path = tiny.make_gguf(tmp_path)
    assert read_eos_ids(path) == open_tokenizer(path).eos_ids != frozenset()
    assert read_eos_ids(tmp_path) == read_eos_ids(path), "a folder with one such file"


@pytest.mark.parametrize("text", ["no json", '{"added_tokens": 5', "[]", "\xff"])
def test_a_broken_file_is_told_or_has_none(tmp_path, text):
    (tmp_path / "tokenizer.json").write_bytes(text.encode("latin-1"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    if text == "[]":
        assert read_eos_ids(tmp_path) == frozenset()
        return
    with pytest.raises(TokenizerFileError, match="cannot be read as a tokenizer"):
        read_eos_ids(tmp_path)


def test_no_tokenizer_is_told(tmp_path):
    with pytest.raises(TokenizerFileError, match=r"no tokenizer\.json in"):
        read_eos_ids(tmp_path)


@pytest.mark.parametrize("listed", ["2", 2.0, True, [2, "3"], [[2]], {"id": 2}])
@pytest.mark.parametrize("file", ["config", "generation_config"])
def test_what_is_no_id_is_refused(tmp_path, file, listed):
    folder = folder_of(tmp_path, added(), None, **{file: {"eos_token_id": listed}})
    for read in (read_eos_ids, open_tokenizer):
        with pytest.raises(TokenizerFileError, match=f"{file}.json: eos_token_id is "):
            read(folder)
