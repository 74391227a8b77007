"""Text is exact: deltas join to the text, for any tokens, on the way through all that reads it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_samples import TEXTS, train_byte_level
from tokenizers import AddedToken

from anychip.text.detokenizer import Detokenizer
from anychip.text.stop import StopChecker, stop_patterns
from anychip.text.token_table import TokenTable, sentencepiece_piece
from anychip.text.tokenizer import Tokenizer

BYTES = TokenTable(tuple(bytes([byte]) for byte in range(256)), frozenset())
WORDS = [
    "<unk>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    "▁hi",
    "é",
    "中文",
    "👨‍👩",
    "\u0301",
]
PIECES = TokenTable(tuple(map(sentencepiece_piece, WORDS)), frozenset({0}), strip_space=True)
TABLES = st.sampled_from([BYTES, PIECES])

UNUSUAL = st.text(
    st.one_of(
        st.sampled_from("aé中👨👩👧\u200d\ufe0f\u0301\u0308🏽🇩🇪\u202e\x00\ufffd "),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)


def spelled(table, text):
    """Tokens that write `text`: whole pieces where one fits, else bytes."""
    ids, data = [], text.encode()
    while data:
        fits = [i for i, piece in enumerate(table.pieces) if piece and data.startswith(piece)]
        ids.append(max(fits, key=lambda i: len(table.pieces[i])))
        data = data[len(table.pieces[ids[-1]]) :]
    return ids


def deltas(table, ids, **options):
    stream = Detokenizer(table, **options)
    return [*(stream.feed((token,)) for token in ids), stream.flush()]


@given(TABLES, UNUSUAL)
def test_deltas_of_any_text_join_to_it_and_show_no_replacement(table, text):
    parts = deltas(table, spelled(table, text), at_start=False)
    assert "".join(parts) == text
    assert "".join(parts).count("\ufffd") == text.count("\ufffd")


@given(TABLES, st.lists(st.integers(-2, 300), max_size=40))
def test_deltas_of_any_tokens_join_to_the_whole(table, ids):
    parts, whole = deltas(table, ids), Detokenizer(table)
    text = whole.feed(ids) + whole.flush()
    assert "".join(parts) == text
    data = table.write(ids, table.special)
    expected = data.removeprefix(b" ") if table.strip_space else data
    assert text == expected.decode("utf-8", "replace")


@given(
    TABLES,
    st.lists(st.integers(0, 300), max_size=40),
    st.lists(st.sampled_from(["a", "hi", "\ufffd", "中", "é\u0301"]), max_size=2),
    st.booleans(),
)
def test_what_is_emitted_is_a_prefix_of_the_text_up_to_a_stop(table, ids, stops, trim):
    text = "".join(deltas(table, ids))
    checker = StopChecker(stops, stop_patterns(["x\ufffd+y", r"\u4e2d\w"]), trim=trim)
    emitted, stopped = "", None
    for delta in deltas(table, ids):
        result = checker.feed(delta)
        emitted += result.text_to_emit
        assert text.startswith(emitted)
        stopped = stopped or result.stopped
    emitted += checker.flush()
    assert emitted == text if stopped is None else text.startswith(emitted)


def work(run):
    """Functions called, those written in C with them: a measure that no clock disturbs."""
    count = 0

    def note(frame, kind, argument):
        nonlocal count
        count += kind in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("token", [0x80, 0xC3, 0xE4, 0xF0, 0xFF, 0x20])
def test_long_tails_of_invalid_bytes_cost_linear_time(token):
    def run(length):
        stream, checker = Detokenizer(BYTES), StopChecker(["\ufffd!"], stop_patterns(["\ufffd+a"]))
        longest = 0
        for _ in range(length):
            text = stream.feed((token,))
            longest = max(longest, len(text), len(checker.feed(text).text_to_emit))
        checker.feed(stream.flush())
        assert longest <= 2

    assert work(lambda: run(4_000)) <= 2.1 * work(lambda: run(2_000))


def test_what_is_held_for_a_character_is_at_most_three_bytes():
    for data in [*(text.encode() for text in TEXTS), b"\xf0\x9f\x91" * 50, b"\xc3" * 50]:
        stream = Detokenizer(BYTES)
        for count, byte in enumerate(data, 1):
            stream.feed((byte,))
            assert len(stream._held) <= 3, data[:count]


SHOWN = TokenTable((b"a", b"<tool>", b"</s>", b"<think>"), frozenset({1, 2, 3}))


def test_special_tokens_that_a_reader_needs_are_shown_alone():
    ids = [0, 1, 0, 2, 3]
    assert "".join(deltas(SHOWN, ids)) == "aa"
    assert "".join(deltas(SHOWN, ids, shown=frozenset({1}))) == "a<tool>a"
    assert "".join(deltas(SHOWN, ids, skip_special_tokens=False)) == "a<tool>a</s><think>"


def test_a_tokenizer_knows_which_special_tokens_those_are():
    tokenizer = Tokenizer(
        core=train_byte_level(), table=SHOWN, vocab_size=4, eos_ids=frozenset({2})
    )
    assert tokenizer.special_ids(["<tool>", "a", "</s>", "<none>"]) == {1}
    stream = tokenizer.detokenizer(shown=tokenizer.special_ids(["<tool>"]))
    assert stream.feed([1, 2, 3]) == "<tool>"


@pytest.mark.parametrize("spaces", [True, False])
def test_nothing_is_put_between_special_tokens_as_transformers_does_not(tmp_path, spaces):
    from transformers import AutoTokenizer

    from anychip.text.load import open_tokenizer

    core = train_byte_level()
    core.add_special_tokens([AddedToken(text, normalized=False) for text in ("<a>", "<b>")])
    core.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    ids = core.encode("x<a><b>y<b> z").ids
    theirs = AutoTokenizer.from_pretrained(tmp_path).decode(
        ids, skip_special_tokens=False, spaces_between_special_tokens=spaces
    )
    assert open_tokenizer(tmp_path).decode(ids, False) == theirs == "x<a><b>y<b> z"
