"""EBNF grammars: real ones, and random ones whose meaning is found by trying everything."""

from __future__ import annotations

import itertools
import random

import pytest
from ebnf_meaning import Reading, accepts
from ebnf_samples import SAMPLES
from grammar_vocabulary import takes, walk
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anychip.grammar.ebnf_reader import read_ebnf
from anychip.grammar.errors import GrammarError
from anychip.request import GrammarSpec


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_grammar_accepts_and_refuses(compiler, vocabulary, name):
    source, good, bad = SAMPLES[name]
    grammar = compiler.compile(GrammarSpec("ebnf", source))
    assert [text for text in good if not takes(grammar, vocabulary, text)] == []
    assert [text for text in bad if takes(grammar, vocabulary, text)] == []


ENDING = (b"\n", b";", b"'", b")", b" ")


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"json", "c-like"}))
def test_what_is_generated_is_accepted_by_the_slow_reading(compiler, vocabulary, name):
    source = SAMPLES[name][0]
    grammar = compiler.compile(GrammarSpec("ebnf", source))
    rng = random.Random(name)
    for _ in range(3):
        text = walk(
            grammar.matcher(),
            vocabulary,
            rng,
            budget=12,
            closing=(b"1", b")") if name == "arithmetic" else ENDING,
        ).decode()
        assert len(text) > 150 or accepts(source, text), text


LETTERS = st.sampled_from(
    ['"a"', '"b"', '"ab"', '"abc"', '"c"', "[ab]", "[^a]", '""', '"ba"', '"aa"']
)
SIGNS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}"])


def expressions(names):
    leaf = LETTERS | st.sampled_from(names)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: f"({pair[0]} {pair[1]})"),
            st.tuples(inner, inner).map(lambda pair: f"({pair[0]} | {pair[1]})"),
            st.tuples(inner, SIGNS).map("".join),
        ),
        max_leaves=6,
    )


@st.composite
def grammars(draw):
    names = ["root", "x", "y"][: draw(st.integers(1, 3))]
    return "\n".join(f"{name} ::= {draw(expressions(names))}" for name in names)


TEXTS = ["".join(text) for size in range(5) for text in itertools.product("abc", repeat=size)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(grammars())
def test_a_random_grammar_means_the_same_after_the_translation(compiler, vocabulary, source):
    try:
        rules = read_ebnf(source, 60)
    except GrammarError:
        assume(False)
    grammar = compiler.compile(GrammarSpec("ebnf", source))
    for text in TEXTS[::4]:
        expected = len(text) in Reading(rules, text).ends("root", 0)
        assert takes(grammar, vocabulary, text) == expected, text


BROKEN = {
    "": "is empty|no rule",
    "# nothing": "no rule",
    'start ::= "a"': "no rule named root",
    "root ::= nmae\nname ::= 'a'": "there is no rule nmae; the nearest is name",
    'root ::= "a': "line 1, column 10: the text that begins here does not end",
    "root ::= [a-z": "the character class that begins here",
    "root ::= [z-a]": "is empty",
    "root ::= []": "is empty",
    'root ::= ("a"': r"expected \)",
    'root ::= "a")': "expected a rule",
    'root ::= "a"{3,2}': "smaller number first",
    'root ::= "a"{}': "expected a repetition",
    'root ::= "a"{100001}': "from 0 to 100000",
    r'root ::= "\q"': r"escape \\q is not known",
    r'root ::= "\x00"': "NUL",
    r'root ::= "\ud800"': "no character",
    'root ::= "a" (= "b")': "look-ahead",
    'root ::= TagDispatch(("a", b))': "structural tag",
    "root ::= <|think|>": "tokens by name",
    'root ::= "a"\nroot ::= "b"': "defined twice",
    'root ::= "a" root': "never ends",
    'root ::= "a" | x\nx ::= y\ny ::= "b" x': "the rule x never ends",
    "root ::= " + "(" * 80 + '"a"' + ")" * 80: "nest deeper",
    "root = a": "expected a rule",
}


@pytest.mark.parametrize("source", BROKEN, ids=lambda source: source[:30])
def test_a_broken_grammar_is_refused_with_its_place(compiler, source):
    with pytest.raises(GrammarError, match=BROKEN[source]):
        compiler.compile(GrammarSpec("ebnf", source))


def test_rules_that_root_does_not_need_are_left_out():
    assert list(read_ebnf('root ::= a\nb ::= missing\na ::= "x"', 60)) == ["root", "a"]
