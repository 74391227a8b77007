"""`llama` GGUF tokenizers must give the ids of SentencePiece itself."""

from __future__ import annotations

import io
import random

import pytest
import sentencepiece
from text_samples import CORPUS, TEXTS, gguf_writer

from anychip.text.errors import TokenizerFileError
from anychip.text.load import open_tokenizer

PIECES = ["a", "b", " ", "  ", "the", "fox", "12", "é", "中", "🤖", "\n", "aa", "▁", "zz", "1"]


def train(prefix=True):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4),
        model_writer=model,
        model_type="bpe",
        vocab_size=480,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        split_digits=True,
        user_defined_symbols=["<think>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def metadata_of(processor, **more):
    ids = range(processor.get_piece_size())
    return {
        "model": "llama",
        "tokens": [processor.id_to_piece(i) for i in ids],
        "scores": [float(processor.get_score(i)) for i in ids],
        "token_type": [_type(processor, i) for i in ids],
        "bos_token_id": processor.bos_id(),
        "eos_token_id": processor.eos_id(),
        "unknown_token_id": processor.unk_id(),
        **more,
    }


def _type(processor, index):
    if processor.is_unknown(index):
        return 2
    if processor.is_control(index):
        return 3
    if processor.is_byte(index):
        return 6
    return 4 if processor.id_to_piece(index) == "<think>" else 1


@pytest.fixture(scope="module", params=[True, False], ids=["prefix", "no-prefix"])
def pair(request, tmp_path_factory):
    processor = train(request.param)
    write = gguf_writer(tmp_path_factory.mktemp("spm"))
    path = write(metadata_of(processor, add_space_prefix=request.param))
    return processor, open_tokenizer(path)


@pytest.mark.parametrize("text", [t for t in TEXTS if "<|" not in t])
def test_ids_and_text_equal_sentencepiece(pair, text):
    processor, tokenizer = pair
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == processor.encode(text)
    assert tokenizer.decode(ids) == processor.decode(ids) == text.replace("▁", " ")


def test_random_texts_equal_sentencepiece(pair):
    processor, tokenizer = pair
    random.seed(5)
    for _ in range(400):
        text = "".join(random.choices(PIECES, k=random.randint(1, 25)))
        assert tokenizer.encode(text, add_special_tokens=False) == processor.encode(text), text


def test_byte_fallback_is_used_and_streams(pair):
    processor, tokenizer = pair
    ids = tokenizer.encode("🤖", add_special_tokens=False)
    assert sum(processor.is_byte(i) for i in ids) == 4
    detokenizer = tokenizer.detokenizer()
    parts = [detokenizer.feed([i]) for i in ids]
    assert parts[-1] == "🤖" and "".join(parts[:-1]) == ""


def test_any_ids_stream_to_their_decode(pair):
    _, tokenizer = pair
    random.seed(6)
    for _ in range(200):
        ids = random.choices(range(tokenizer.vocab_size), k=12)
        detokenizer = tokenizer.detokenizer()
        parts = [detokenizer.feed([i]) for i in ids]
        assert "".join(parts) + detokenizer.flush() == tokenizer.decode(ids)


def test_bos_by_default_and_symbols_stay_whole(pair):
    processor, tokenizer = pair
    ids = tokenizer.encode("a<think>b")
    assert ids[0] == processor.bos_id() and processor.piece_to_id("<think>") in ids
    assert tokenizer.decode(ids) == "a<think> b" if tokenizer.table.strip_space else "a<think>b"
    assert tokenizer.eos_ids == {processor.eos_id()}


def test_continuing_a_prompt_keeps_the_space(pair):
    processor, tokenizer = pair
    the = processor.piece_to_id("▁the")
    assert tokenizer.detokenizer(at_start=False).feed([the]) == " the"


def test_scores_are_needed(write_gguf):
    metadata = metadata_of(train())
    metadata["scores"] = metadata["scores"][:5]
    with pytest.raises(TokenizerFileError, match="scores has 5 entries"):
        open_tokenizer(write_gguf(metadata))
