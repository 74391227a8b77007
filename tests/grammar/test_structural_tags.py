"""Text that holds parts of a fixed form, in both spellings, and tool calls made of it."""

from __future__ import annotations

import json

import pytest
from grammar_vocabulary import CALL, CALLED, takes
from schema_samples import INTEGER, closed

from anychip.grammar.errors import GrammarError
from anychip.grammar.parts import (
    part_of,
    schema_part,
    spec_of,
    tag_part,
    text_part,
    triggered_part,
)
from anychip.grammar.structural_fields import REFUSED
from anychip.request import GrammarSpec

CITY = closed({"city": {"type": "string"}}, "city")
OLDER = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<function=weather>", "schema": CITY, "end": "</function>"},
        {"begin": "<function=add>", "schema": closed({"a": INTEGER}, "a"), "end": "</function>"},
    ],
    "triggers": ["<function="],
}


def spec(value) -> GrammarSpec:
    return GrammarSpec("structural_tag", json.dumps(value))


def written(part) -> GrammarSpec:
    return spec({"type": "structural_tag", "format": part})


def text(value):
    return {"type": "const_string", "value": value}


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def schema(value):
    return {"type": "json_schema", "json_schema": value}


ANY = {"type": "any_text"}
DIGITS = {"type": "regex", "pattern": "[0-9]+"}
TAGS = [tag("<a>", DIGITS, "</a>"), tag("<b>", schema(CITY), "</b>")]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<a", "<b"], "tags": TAGS}
SEPARATED = {"type": "tags_with_separator", "tags": TAGS, "separator": ", "}

CASES = {
    "older": (
        spec(OLDER),
        [
            "no call at all",
            "",
            'well <function=weather>{"city": "Rome"}</function> and',
            '<function=add>{"a":1}</function><function=add>{"a":2}</function>',
            "a <func is no trigger, nor is < or <function",
        ],
        [
            "<function=",
            "<function=other>{}</function>",
            '<function=add>{"a":"x"}</function>',
            '<function=add>{"a":1}',
            'x <function=add>{"a":1}</function> <function=',
        ],
    ),
    "const": (written(text('ab\n"é')), ['ab\n"é'], ["", "ab", 'ab\n"éx']),
    "any text": (written(ANY), ["", "anything\nat all 日本"], []),
    "schema": (written(schema(CITY)), ['{"city":"x"}'], ["{}", "x"]),
    "regex": (written(DIGITS), ["1", "123"], ["", "a"]),
    "grammar": (
        written({"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'}),
        ["x", "((x))"],
        ["", "(x", "()"],
    ),
    "tag": (written(tag("<t>", DIGITS, "</t>")), ["<t>1</t>"], ["<t></t>", "1", "<t>1</t>x"]),
    "tag of any text": (
        written(tag("<t>", ANY, "</t>")),
        ["<t></t>", "<t>a < b </ t></t>"],
        ["<t>", "<t>a", "<t>a</t>b</t>"],
    ),
    "tag with two ends": (
        written(tag("<", DIGITS, [">", "/>"])),
        ["<1>", "<12/>"],
        ["<1", "<1/", "<1>/>"],
    ),
    "greedy content": (
        written(tag("", {"type": "regex", "pattern": "[a-z]+"}, "end")),
        ["aend", "endend", "xendend"],
        ["end", "a"],
    ),
    "greedy grammar": (
        written(tag("", {"type": "grammar", "grammar": "root ::= [a-z]+"}, "end")),
        ["aend", "endend"],
        ["end", "a"],
    ),
    "sequence": (
        written({"type": "sequence", "elements": [text("a"), DIGITS, text("b"), schema(CITY)]}),
        ['a1b{"city":""}'],
        ["a1b", 'ab{"city":""}'],
    ),
    "any text up to a const": (
        written({"type": "sequence", "elements": [ANY, text("==>"), DIGITS]}),
        ["==>1", "so a == b ==>12"],
        ["1", "a ==> 1", "a ==>1==>2"],
    ),
    "or": (written({"type": "or", "elements": [text("yes"), DIGITS]}), ["yes", "7"], ["", "no"]),
    "optional": (
        written(
            {"type": "sequence", "elements": [{"type": "optional", "content": text("a")}, DIGITS]}
        ),
        ["a1", "1"],
        ["aa1", "a"],
    ),
    "star": (written({"type": "star", "content": text("ab")}), ["", "abab"], ["a", "aba"]),
    "plus": (written({"type": "plus", "content": text("ab")}), ["ab", "abab"], ["", "aba"]),
    "repeat": (
        written({"type": "repeat", "min": 1, "max": 2, "content": text("ab")}),
        ["ab", "abab"],
        ["", "ababab"],
    ),
    "repeat without end": (
        written({"type": "repeat", "min": 2, "max": -1, "content": text("a")}),
        ["aa", "aaaaa"],
        ["a", ""],
    ),
    "triggered": (
        written(TRIGGERED),
        ["", "text", "x <a>1</a> y", '<b>{"city":"x"}</b><a>2</a>', "< a > b"],
        ["<a", "<a>x</a>", "<c <b", "<a>1</a> <b>"],
    ),
    "triggered, at least one": (
        written({**TRIGGERED, "at_least_one": True}),
        ["<a>1</a>", "<a>1</a> then <a>2</a>."],
        ["", "text", "text <a>1</a>"],
    ),
    "triggered, only one": (
        written({**TRIGGERED, "stop_after_first": True}),
        ["", "text", "x <a>1</a>"],
        ["<a>1</a> more", "<a>1</a><a>2</a>"],
    ),
    "triggered, exactly one": (
        written({**TRIGGERED, "stop_after_first": True, "at_least_one": True}),
        ["<a>1</a>"],
        ["", "text", "x <a>1</a>", "<a>1</a>x"],
    ),
    "separated": (written(SEPARATED), ["", "<a>1</a>", "<a>1</a>, <a>2</a>"], ["<a>1</a>, ", "x"]),
    "separated, at least one": (
        written({**SEPARATED, "at_least_one": True}),
        ["<a>1</a>"],
        ["", "<a>1</a><a>1</a>"],
    ),
    "separated, only one": (
        written({**SEPARATED, "stop_after_first": True}),
        ["", "<a>1</a>"],
        ["<a>1</a>, <a>2</a>"],
    ),
    "reasoning first": (
        written({"type": "sequence", "elements": [tag("<think>", ANY, "</think>"), TRIGGERED]}),
        ["<think>hm <a> ok</think>", "<think></think> so <a>1</a>"],
        ["", "so", "<think>hm", "<think></think><a>"],
    ),
    "lark in xgrammar's clothes": (
        written(tag("[", {"type": "or", "elements": [text("]"), text("a]")]}, "]")),
        ["[]]", "[a]]"],
        ["[]", "[a]"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_structural_tag_accepts_and_refuses(compiler, vocabulary, name):
    given, good, bad = CASES[name]
    grammar = compiler.compile(given)
    assert [one for one in good if not takes(grammar, vocabulary, one)] == []
    assert [one for one in bad if takes(grammar, vocabulary, one)] == []


def triggered(begin, end, *, trigger):
    tag = tag_part(begin, schema_part(CITY), end)
    return spec_of(triggered_part([tag], [trigger], only_one=False))


def test_special_tokens_are_tokens_and_not_their_spelling(compiler, vocabulary):
    grammar = compiler.compile(triggered(CALL, CALLED, trigger=CALL))
    call = f'one {CALL}{{"city":"x"}}{CALLED} two'
    assert takes(grammar, vocabulary, call, CALL, CALLED)
    assert takes(grammar, vocabulary, call)  # spelled out, it is text
    assert not takes(grammar, vocabulary, f"{CALL}{{}}", CALL)
    assert not takes(grammar, vocabulary, f"text {CALLED}", CALLED)


@pytest.mark.parametrize("token", [CALL, "id"])
def test_a_token_may_be_named_or_numbered(compiler, vocabulary, token):
    number = vocabulary.special[CALL]
    edge = {"type": "token", "token": number if token == "id" else token}
    grammar = compiler.compile(written(tag(edge, DIGITS, {"type": "token", "token": CALLED})))
    assert takes(grammar, vocabulary, f"{CALL}12{CALLED}", CALL, CALLED)
    assert not takes(grammar, vocabulary, f"{CALL}12{CALLED}")


def test_text_before_a_special_end(compiler, vocabulary):
    grammar = compiler.compile(written(tag("<t>", ANY, f"\n{CALLED}")))
    assert takes(grammar, vocabulary, f"<t>a\nb\n{CALLED}", CALLED)
    assert not takes(grammar, vocabulary, f"<t>a\nb{CALLED}", CALLED)


AFTER = {
    "json_schema": (json.dumps(CITY), '{"city":"x"}', "{}"),
    "json_object": ("", "{}", "x"),
    "regex": ("[0-9]+", "12", "x"),
    "ebnf": ('root ::= "a"+', "aa", "b"),
    "choice": ('["yes","no"]', "yes", "maybe"),
    "structural_tag": (json.dumps(OLDER), "hello", "<function=x"),
}


@pytest.mark.parametrize("kind", AFTER)
def test_reasoning_may_come_before_any_kind(compiler, vocabulary, kind):
    source, good, bad = AFTER[kind]
    before = {"type": "any_text"}, text_part("</think>")
    grammar = compiler.compile(spec_of(*before, part_of(GrammarSpec(kind, source))))
    assert takes(grammar, vocabulary, f"let me see: 1 < 2 </think>{good}")
    assert not takes(grammar, vocabulary, f"let me see</think>{bad}")
    assert not takes(grammar, vocabulary, good)


def test_lark_is_no_part_of_anything():
    assert part_of(GrammarSpec("lark", "start: /a/")) is None


REFUSALS = {
    "/format": {"format": 3},
    "/format/type": {"format": {"type": "unheard"}},
    "/format/elements/1/colour": {
        "format": {
            "type": "sequence",
            "elements": [ANY | {"excludes": []}, {**DIGITS, "colour": 1}],
        }
    },
    "/format/elements/0": {"format": {"type": "sequence", "elements": [ANY, DIGITS]}},
    "/format/style": {"format": {**schema({}), "style": "qwen_xml"}},
    "/format/excludes": {"format": {**ANY, "excludes": ["x"]}},
    "/format/json_schema/properties/a/not": {"format": schema({"properties": {"a": {"not": {}}}})},
    "/format/pattern": {"format": {"type": "regex", "pattern": "(?=a)"}},
    "/format/grammar": {"format": {"type": "grammar", "grammar": "roto ::= x"}},
    "/format/tags/0": {"format": {**TRIGGERED, "triggers": ["<x"]}},
    "/format/tags/0/type": {"format": {**SEPARATED, "tags": [text("x")]}},
    "/format/triggers/1": {"format": {**TRIGGERED, "triggers": ["<a", ""]}},
    "/format/max": {"format": {"type": "repeat", "min": 1, "max": 1.5, "content": DIGITS}},
    "/format/begin": {"format": {"type": "tag", "begin": {"type": "token", "token": "<no>"}}},
    "/format/content/type": {"format": tag("", {"type": None}, "")},
    "/structures/0": {**OLDER, "structures": [{"begin": "<function=", "end": ""}]},
    "/structures/0/schema/items/contains": {
        **OLDER,
        "structures": [{"begin": "<function=", "end": "", "schema": {"items": {"contains": {}}}}],
    },
    "/triggers": {**OLDER, "triggers": []},
    "/more": {**OLDER, "more": 1},
}


@pytest.mark.parametrize("pointer", REFUSALS)
def test_what_is_wrong_in_a_structural_tag_has_its_pointer(compiler, pointer):
    with pytest.raises(GrammarError) as caught:
        compiler.compile(spec(REFUSALS[pointer]))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_format_that_is_not_supported_is_named(compiler, kind):
    with pytest.raises(GrammarError, match=kind) as caught:
        compiler.compile(written({"type": "sequence", "elements": [{"type": kind}]}))
    assert caught.value.pointer == "/format/elements/0/type"


def test_a_mixed_trigger_is_refused(compiler):
    with pytest.raises(GrammarError, match="mixes"):
        compiler.compile(triggered(f"x{CALL}y", "", trigger=f"x{CALL}"))
