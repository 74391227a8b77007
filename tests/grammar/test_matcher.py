"""One sequence against one grammar: masks, forced tokens, the end, copies."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from grammar_vocabulary import CALL, EOS, EOT, allowed, takes

from anychip.grammar.compiler import GrammarCompiler
from anychip.grammar.errors import GrammarError
from anychip.grammar.limits import GrammarLimits
from anychip.request import GrammarSpec


def regex(pattern):
    return GrammarSpec("regex", pattern)


@pytest.fixture
def digits(compiler):
    return compiler.compile(regex("[0-9]{2}")).matcher()


def test_a_mask_has_one_bit_a_token(digits, vocabulary):
    words = np.full(vocabulary.words, -1, np.int32)
    digits.fill(words)
    expected = {
        token
        for token, piece in enumerate(vocabulary.pieces)
        if piece.isdigit() and len(piece) <= 2
    }
    found = {t for t in range(32 * len(words)) if words[t // 32] >> (t % 32) & 1}
    assert found == expected
    assert vocabulary.pieces.index(b"12") in found


def test_padding_past_the_tokenizer_is_never_allowed(compiler, vocabulary):
    matcher = compiler.compile(regex(r"(.|\n)*")).matcher()
    assert vocabulary.size > len(vocabulary.pieces)
    assert allowed(matcher, vocabulary).max() < len(vocabulary.pieces)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.int32), np.zeros(11, np.int64)])
def test_a_mask_of_the_wrong_form_is_a_mistake(digits, wrong):
    with pytest.raises(ValueError, match="a mask is int32"):
        digits.fill(wrong)


def test_a_mask_must_be_contiguous(digits, vocabulary):
    with pytest.raises(ValueError, match="contiguous"):
        digits.fill(np.zeros(2 * vocabulary.words, np.int32)[::2])


def test_the_end_is_allowed_where_it_may_be_and_forced_where_it_must_be(compiler, vocabulary):
    matcher = compiler.compile(regex("ab?")).matcher()
    ends = set(vocabulary.eos_ids)
    assert not ends & set(allowed(matcher, vocabulary)) and not matcher.may_end
    assert matcher.accept(ord("a"))
    assert ends < set(allowed(matcher, vocabulary)) and matcher.may_end and not matcher.finished
    assert matcher.accept(ord("b"))
    assert ends == set(allowed(matcher, vocabulary)) and matcher.finished
    assert matcher.forced() == ()


@pytest.mark.parametrize("name", [EOS, EOT])
def test_each_end_token_ends(compiler, vocabulary, name):
    matcher = compiler.compile(regex("a+")).matcher()
    end = vocabulary.special[name]
    assert not matcher.accept(end)
    assert matcher.accept(ord("a")) and matcher.accept(end)
    assert matcher.finished and not matcher.accept(ord("a"))


def test_a_refused_token_changes_nothing(digits, vocabulary):
    before = list(allowed(digits, vocabulary))
    for token in (
        ord("x"),
        vocabulary.special[EOS],
        vocabulary.special[CALL],
        len(vocabulary.pieces),
    ):
        assert not digits.accept(token)
    assert list(allowed(digits, vocabulary)) == before
    assert digits.accept(ord("1")) and digits.accept(ord("2")) and digits.finished


def test_a_copy_goes_its_own_way(digits, vocabulary):
    assert digits.accept(ord("1"))
    copy = digits.copy()
    assert copy.accept(ord("2")) and copy.finished
    assert not digits.finished and not digits.may_end
    assert digits.accept(ord("3"))


def test_an_end_token_may_be_a_part_of_a_grammar(compiler, vocabulary):
    """Some models end a tool call with a token that also ends the answer."""
    end = vocabulary.special[EOT]
    form = {
        "type": "sequence",
        "elements": [{"type": "regex", "pattern": "a+"}, {"type": "token", "token": end}],
    }
    spec = GrammarSpec("structural_tag", json.dumps({"type": "structural_tag", "format": form}))
    matcher = compiler.compile(spec).matcher()
    assert matcher.accept(ord("a")) and not matcher.may_end
    assert end in allowed(matcher, vocabulary) and vocabulary.special[EOS] not in allowed(
        matcher, vocabulary
    )
    assert matcher.accept(end) and matcher.finished


def test_forced_tokens_are_those_of_the_tokenizer(compiler, vocabulary):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    matcher = compiler.compile(GrammarSpec("json_schema", json.dumps(schema), False)).matcher()
    forced = matcher.forced()
    assert forced and b'{"name":"'.startswith(b"".join(vocabulary.pieces[t] for t in forced))
    for token in forced:
        assert token in allowed(matcher, vocabulary)
        assert matcher.accept(token)
    taken = b"".join(vocabulary.pieces[t] for t in forced)
    assert all(map(matcher.accept, b'{"name":"'[len(taken) :]))
    assert {ord("x"), ord('"')} < set(allowed(matcher, vocabulary))  # the string may be anything


@pytest.mark.parametrize("word", ["the world and ", "schöne Welt 🙂 "])
def test_of_a_long_forced_text_the_beginning_is_told(compiler, vocabulary, word):
    text = (word * 2000).strip()
    matcher = compiler.compile(GrammarSpec("choice", json.dumps([text]))).matcher()
    written, most = b"", 0
    while not matcher.finished:
        forced = matcher.forced()
        most = max(most, len(forced))
        assert forced
        for token in forced:
            assert matcher.accept(token)
            written += vocabulary.pieces[token]
    assert written == text.encode() and most <= 4096


def test_forced_tokens_can_be_taken_to_the_end(compiler, vocabulary):
    matcher = compiler.compile(GrammarSpec("choice", '["the world and the name"]')).matcher()
    text = b""
    while not matcher.finished:
        forced = matcher.forced()
        token = forced[0] if forced else int(allowed(matcher, vocabulary)[0])
        assert matcher.accept(token)
        text += vocabulary.pieces[token]
    assert text == b"the world and the name"


def test_a_lexer_of_llguidance_that_has_seen_too_much_starts_anew(vocabulary):
    """Its states are shared by all matchers of a grammar; none of them may fail for the others."""
    compiler = GrammarCompiler(vocabulary, GrammarLimits(lexer_states=1000))
    grammar = compiler.compile(regex("(a|b|c| )*a(a|b|c| ){60}"))
    first = grammar.parser(None)
    matchers = [grammar.matcher() for _ in range(30)]
    rng = random.Random(1)
    for matcher in matchers:
        for _ in range(20):
            ids = [t for t in allowed(matcher, vocabulary) if t not in vocabulary.eos_ids]
            assert matcher.accept(int(rng.choice(ids)))
    assert grammar.parser(None) is not first
    assert takes(grammar, vocabulary, "ba" + "c" * 60)


def test_a_grammar_that_leads_nowhere_says_so(compiler, vocabulary):
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    with pytest.raises(GrammarError, match=r"no text fits|Circular"):
        allowed(
            compiler.compile(GrammarSpec("json_schema", json.dumps(schema))).matcher(), vocabulary
        )


def test_half_characters_are_joined(compiler, vocabulary):
    matcher = compiler.compile(regex("[日月]x")).matcher()
    half = vocabulary.pieces.index("日".encode()[:2])
    assert half in allowed(matcher, vocabulary)
    assert matcher.accept(half)
    assert list(allowed(matcher, vocabulary)) == ["日".encode()[2]]
