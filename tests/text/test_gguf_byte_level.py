from __future__ import annotations

import json

import pytest
from text_samples import TEXTS, train_byte_level
from tokenizers import Regex, normalizers, pre_tokenizers

from anychip.text.errors import TokenizerFileError
from anychip.text.load import open_tokenizer

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def split(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def metadata_of(core, pre, **more):
    model = json.loads(core.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [3 if token == "<|end|>" else 1 for token in tokens],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "eos_token_id": 0,
        **more,
    }


def plain():
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def digits():
    single = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([single, plain()])


CASES = {
    "gpt-2": plain,
    "smollm": digits,
    "starcoder": digits,
    "llama-bpe": lambda: split(LLAMA3),
    "qwen2": lambda: split(QWEN2),
}


@pytest.mark.parametrize("pre", CASES)
def test_ids_equal_the_public_splitting(write_gguf, pre):
    core = train_byte_level(pre_tokenizer=CASES[pre]())
    if pre == "qwen2":
        core.normalizer = normalizers.NFC()
    tokenizer = open_tokenizer(write_gguf(metadata_of(core, pre)))
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == core.encode(text).ids, text
        assert tokenizer.decode(ids, False) == core.decode(ids, skip_special_tokens=False)


def test_split_order_of_the_default(write_gguf):
    core = train_byte_level()
    tokenizer = open_tokenizer(write_gguf(metadata_of(core, "default")))
    pieces = tokenizer.core.pre_tokenizer.pre_tokenize_str("x=12345, ok")
    assert [piece for piece, _ in pieces] == ["x", "=", "123", "45", ",", "Ġok"]


def test_missing_pre_means_default_and_tekken_is_valid(write_gguf):
    metadata = metadata_of(train_byte_level(), "tekken")
    assert open_tokenizer(write_gguf(metadata)).decode([5, 6])
    del metadata["pre"]
    assert open_tokenizer(write_gguf(metadata)).encode("a")


def test_unknown_splitting_is_refused_by_name(write_gguf):
    path = write_gguf(metadata_of(train_byte_level(), "gpt-9"))
    with pytest.raises(TokenizerFileError, match=r"'gpt-9'.*known are .*smollm"):
        open_tokenizer(path)


def test_bos_and_eos_as_the_file_says(write_gguf):
    core = train_byte_level(pre_tokenizer=split(LLAMA3))
    body = core.encode("hi").ids
    silent = open_tokenizer(write_gguf(metadata_of(core, "llama-bpe", bos_token_id=7)))
    assert silent.encode("hi") == [7, *body] and silent.encode("hi", False) == body
    flags = {"add_bos_token": False, "add_eos_token": True, "bos_token_id": 7}
    stated = open_tokenizer(write_gguf(metadata_of(core, "llama-bpe", **flags)))
    assert stated.encode("hi") == [*body, 0]


def test_every_marked_end_ends(write_gguf):
    metadata = metadata_of(train_byte_level(), "gpt-2", eot_token_id=5, eom_token_id=6)
    extra = ["<|eot_id|>", "<|im_end|>"]
    start = len(metadata["tokens"])
    metadata["tokens"] = metadata["tokens"] + extra
    metadata["token_type"] = metadata["token_type"] + [3, 1]
    tokenizer = open_tokenizer(write_gguf(metadata))
    assert tokenizer.eos_ids == {0, 5, 6, start}, "a control token counts, a plain one does not"


def test_user_defined_tokens_stay_whole_and_are_written(write_gguf):
    metadata = metadata_of(train_byte_level(), "gpt-2")
    think = len(metadata["tokens"])
    metadata["tokens"] = [*metadata["tokens"], "<né think>"]
    metadata["token_type"] = [*metadata["token_type"], 4]
    tokenizer = open_tokenizer(write_gguf(metadata))
    ids = tokenizer.encode("a<né think>b<|end|>")
    assert think in ids and ids[-1] == 0
    assert tokenizer.decode(ids) == "a<né think>b"


WRONG = {
    "tokens is empty": {"tokens": [], "token_type": []},
    "'zz zz' needs 'zz', no token": {"merges": ["zz zz"]},
    "which is no pair": {"merges": ["justone"]},
    "bos_token_id is 99999, but the vocabulary has": {"bos_token_id": 99999},
    "bos_token_id must be a token id": {"bos_token_id": "one"},
    "add_bos_token must be true or false": {"add_bos_token": 3, "bos_token_id": 0},
    "token_type has 1 entries": {"token_type": [1]},
    "tokens is missing": {"tokens": "text"},
    "tokens holds 1": {"tokens": [1, 2]},
    "pre must be a text": {"pre": 7},
    "'bert'.*'gpt2'": {"model": "bert"},
    "token of 5000 characters": {"tokens": ["x" * 5000], "token_type": [1], "merges": ["a b"]},
}


@pytest.mark.parametrize("message", WRONG)
def test_contradictions_are_named(write_gguf, message):
    metadata = {**metadata_of(train_byte_level(300), "gpt-2"), **WRONG[message]}
    if metadata["tokens"] == []:
        from anychip.text.gguf_tokenizer import tokenizer_from_metadata

        prefixed = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
        with pytest.raises(TokenizerFileError, match=message):
            tokenizer_from_metadata(prefixed)
        return
    path = write_gguf(metadata)
    with pytest.raises(TokenizerFileError, match=message) as caught:
        open_tokenizer(path)
    assert str(path) in str(caught.value)


def test_byte_level_without_merges_is_refused(write_gguf):
    metadata = metadata_of(train_byte_level(300), "gpt-2")
    del metadata["merges"]
    with pytest.raises(TokenizerFileError, match="merges is missing"):
        open_tokenizer(write_gguf(metadata))
