"""Vocabularies of real tokenizers, of either kind, as masks are made over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grammar_vocabulary import allowed, small_vocabulary
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from anychip.grammar.compiler import GrammarCompiler
from anychip.grammar.errors import GrammarError
from anychip.grammar.vocabulary import vocabulary_of
from anychip.request import GrammarSpec
from anychip.text.folder_tokenizer import open_folder_tokenizer


def save(core, folder):
    core.add_special_tokens([AddedToken("</s>", special=True)])
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return open_folder_tokenizer(folder)


@pytest.fixture
def byte_level(tmp_path):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, "ab", "Ġab", '{"', "na", "me", "name"]
    merges = [("a", "b"), ("Ġ", "ab"), ("{", '"'), ("n", "a"), ("m", "e"), ("na", "me")]
    core = Tokenizer(models.BPE({name: at for at, name in enumerate(names)}, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return save(core, tmp_path)


@pytest.fixture
def spaced(tmp_path):
    """As SentencePiece has it: a space is put before every text, and bytes are tokens."""
    names = ["<unk>", *(f"<0x{value:02X}>" for value in range(256)), "▁", *"abnme", "ab", "▁ab"]
    merges = [("a", "b"), ("▁", "ab")]
    core = Tokenizer(
        models.BPE(
            {n: at for at, n in enumerate(names)}, merges, unk_token="<unk>", byte_fallback=True
        )
    )
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return save(core, tmp_path)


def pieces(vocabulary, ids):
    return [vocabulary.pieces[i] for i in ids]


def test_a_byte_level_text_is_split_as_the_model_saw_it(byte_level):
    vocabulary = vocabulary_of(byte_level, byte_level.vocab_size + 3)
    assert pieces(vocabulary, vocabulary.tokens_of(b'{"name')) == [b'{"', b"name"]
    assert vocabulary.size == byte_level.vocab_size + 3
    assert vocabulary.eos_ids == (vocabulary.special["</s>"],)


def test_no_space_is_put_before_a_forced_text(spaced):
    vocabulary = vocabulary_of(spaced, spaced.vocab_size)
    assert pieces(vocabulary, vocabulary.tokens_of(b"ab")) == [b"ab"]
    assert pieces(vocabulary, vocabulary.tokens_of(b" ab")) == [b" ab"]
    assert pieces(vocabulary, vocabulary.tokens_of("é".encode())) == [b"\xc3", b"\xa9"]


@pytest.mark.parametrize("tokenizer", ["byte_level", "spaced"])
def test_a_special_token_spelled_out_is_split_as_text(tokenizer, request):
    found = request.getfixturevalue(tokenizer)
    vocabulary = vocabulary_of(found, found.vocab_size)
    ids = vocabulary.tokens_of(b"a</s>b")
    assert b"".join(pieces(vocabulary, ids)) == b"a</s>b"
    assert vocabulary.special["</s>"] not in ids


@pytest.mark.parametrize("tokenizer", ["byte_level", "spaced"])
def test_a_grammar_runs_over_a_real_tokenizer(tokenizer, request):
    found = request.getfixturevalue(tokenizer)
    vocabulary = vocabulary_of(found, found.vocab_size)
    matcher = GrammarCompiler(vocabulary).compile(GrammarSpec("regex", "ab ab(name)?")).matcher()
    forced = matcher.forced()
    text = b"".join(pieces(vocabulary, forced))
    assert text and b"ab ab".startswith(text)
    for token in vocabulary.tokens_of(b"ab ab"):
        assert token in allowed(matcher, vocabulary)
        assert matcher.accept(token)
    assert matcher.may_end and set(vocabulary.eos_ids) < set(allowed(matcher, vocabulary))


def test_bytes_that_are_no_text_are_split_by_the_longest_piece():
    vocabulary = small_vocabulary()
    ids = vocabulary.tokens_of(b"\xff12345\xe6\x97")
    assert pieces(vocabulary, ids) == [b"\xff", b"12", b"345", b"\xe6\x97"]


def test_a_special_token_is_found_by_its_longest_name():
    vocabulary = replace(small_vocabulary(), special={"<a": 1, "<a>": 2, "<a>b": 3})
    assert vocabulary.special_at("x<a>c", 1) == "<a>"
    assert vocabulary.special_at("x<a>c", 0) is None


def test_a_model_without_an_end_token_cannot_be_held_to_a_grammar():
    with pytest.raises(GrammarError, match="end-of-sequence"):
        replace(small_vocabulary(), eos_ids=())


def test_a_model_with_fewer_logits_than_tokens_is_told():
    with pytest.raises(GrammarError, match="logits"):
        replace(small_vocabulary(), size=10)


def test_the_demo_model_writes_a_schema(demo_model):
    from anychip.text.load import open_tokenizer

    tokenizer = open_tokenizer(demo_model)
    vocabulary = vocabulary_of(tokenizer, tokenizer.vocab_size)
    schema = '{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}'
    matcher = GrammarCompiler(vocabulary).compile(GrammarSpec("json_schema", schema)).matcher()
    words = np.zeros(vocabulary.words, np.int32)
    for token in tokenizer.encode('{"name": "Bo b"}', add_special_tokens=False):
        matcher.fill(words)
        assert words[token // 32] >> (token % 32) & 1
        assert matcher.accept(token)
    assert matcher.finished
