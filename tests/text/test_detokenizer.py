from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_samples import TEXTS, train_byte_level

from anychip.text.detokenizer import Detokenizer
from anychip.text.token_table import TokenTable, byte_alphabet

CORE = train_byte_level()
BYTES = TokenTable(tuple(bytes([byte]) for byte in range(256)), frozenset())
IDS = st.lists(st.integers(0, CORE.get_vocab_size() - 1), max_size=30)


def stream(table, ids, **options):
    detokenizer = Detokenizer(table, **options)
    return [*(detokenizer.feed([token]) for token in ids), detokenizer.flush()]


def table_of(core):
    from anychip.text.folder_tokenizer import _token_table

    return _token_table(core, frozenset())


TABLE = table_of(CORE)


@given(IDS, st.booleans())
def test_deltas_join_to_the_library_s_decode_for_any_tokens(ids, skip):
    joined = "".join(stream(TABLE, ids, skip_special_tokens=skip))
    assert joined == CORE.decode(ids, skip_special_tokens=skip)


@given(st.binary(max_size=24), st.integers(0, 24))
def test_cutting_anywhere_changes_nothing(data, cut):
    detokenizer = Detokenizer(BYTES)
    text = detokenizer.feed(data[:cut]) + detokenizer.feed(data[cut:]) + detokenizer.flush()
    assert text == data.decode("utf-8", "replace")


@pytest.mark.parametrize("text", TEXTS)
def test_valid_text_never_shows_a_replacement(text):
    parts = stream(BYTES, text.encode())
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts)


def test_emoji_appears_with_its_last_byte():
    assert stream(BYTES, "🤖".encode()) == ["", "", "", "🤖", ""]


def test_cut_character_is_flushed_once():
    assert stream(BYTES, "🤖".encode()[:3]) == ["", "", "", "\ufffd"]


def test_hopeless_bytes_are_not_held():
    assert stream(BYTES, [0xFF, 0xFE, 0x41]) == ["\ufffd", "\ufffd", "A", ""]


def test_held_text_does_not_grow():
    detokenizer = Detokenizer(BYTES)
    for _ in range(10_000):
        assert detokenizer.feed([0x80]) == "\ufffd"


def test_special_and_unknown_ids_write_nothing():
    table = TokenTable((b"a", b"<s>"), frozenset({1}))
    assert stream(table, [0, 1, 2, 99, -1, 0]) == ["a", "", "", "", "", "a", ""]
    assert "".join(stream(table, [0, 1], skip_special_tokens=False)) == "a<s>"


def test_leading_space_is_the_tokenizer_s_only_at_the_start():
    table = TokenTable((b" hi", b""), frozenset(), strip_space=True)
    assert stream(table, [1, 0, 0]) == ["", "hi", " hi", ""]
    assert stream(table, [0], at_start=False) == [" hi", ""]


def test_alphabet_is_the_library_s():
    from tokenizers import pre_tokenizers

    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
