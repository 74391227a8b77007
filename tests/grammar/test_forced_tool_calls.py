"""What the grammar of a forced call lets through is what the parser of its format reads."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from grammar_vocabulary import walk
from schema_samples import TREE

from anychip.http.errors import ApiError
from anychip.request import GrammarSpec
from anychip.server.chat_tools import ToolWish
from anychip.server.grammar_fields import GrammarWish, behind_thoughts
from anychip.server.thought_grammar import thoughts
from anychip.server.tool_grammar import schema_wishes, tool_wish
from anychip.text.answer.events import CallArguments, CallStart, Text
from anychip.text.answer.formats import TOOL_FORMATS
from anychip.text.answer.reader import AnswerFormat, AnswerReader

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": CITY, "ping": None, "plant": TREE}


def tools(**changes):
    return [
        {"type": "function", "function": {"name": name, "parameters": schema, **changes}}
        for name, schema in SCHEMAS.items()
    ]


def calls_of(text, form):
    """Names and arguments of all calls; fails where anything else was said."""
    reader = AnswerReader(AnswerFormat(tools=form, names=tuple(SCHEMAS)))
    found = []
    for event in [*reader.feed(text), *reader.flush()]:
        if isinstance(event, CallStart):
            found.append([event.name, ""])
        elif isinstance(event, CallArguments):
            found[-1][1] += event.delta
        else:
            assert isinstance(event, Text) and not event.text.strip(), (text, event)
    return [(name, json.loads(arguments)) for name, arguments in found]


def check(name, arguments):
    jsonschema.validate(arguments, SCHEMAS[name] or {"type": "object"})


@pytest.mark.parametrize("form", TOOL_FORMATS)
@pytest.mark.parametrize("parallel", [True, False])
def test_required(compiler, vocabulary, form, parallel):
    wish = ToolWish(tools=tools(), choice="required", parallel=parallel)
    grammar = compiler.compile(tool_wish(wish, form, None, []).spec)
    counts = set()
    for seed in range(12):
        text = walk(grammar.matcher(), vocabulary, random.Random(seed), budget=30).decode()
        calls = calls_of(text, form)
        assert calls
        counts.add(len(calls))
        for name, arguments in calls:
            check(name, arguments)
    assert parallel or counts == {1}


@pytest.mark.parametrize("form", TOOL_FORMATS)
def test_named(compiler, vocabulary, form):
    wish = ToolWish(tools=tools(), choice="named", name="get_weather")
    grammar = compiler.compile(tool_wish(wish, form, None, []).spec)
    for seed in range(4):
        text = walk(grammar.matcher(), vocabulary, random.Random(seed), budget=20).decode()
        ((name, arguments),) = calls_of(text, form)
        assert name == "get_weather"
        check(name, arguments)


def test_thoughts_may_come_before_a_forced_call(compiler, vocabulary):
    wish = ToolWish(tools=tools(), choice="named", name="get_weather")
    grammar = compiler.compile(
        tool_wish(wish, "hermes", None, thoughts("qwen3", True, speaks=False)).spec
    )
    matcher = grammar.matcher()
    for byte in b"hm, let me </see":
        assert matcher.accept(byte)
    assert not matcher.may_end
    for byte in b"</think>":
        assert matcher.accept(byte)
    text = walk(matcher, vocabulary, random.Random(1), budget=20).decode()
    assert calls_of(text, "hermes")[0][0] == "get_weather"


@pytest.mark.parametrize("form", TOOL_FORMATS)
def test_a_strict_tool_is_held_to_its_schema_where_it_is_called(compiler, form):
    wish = ToolWish(tools=tools(strict=True))
    grammar = compiler.compile(tool_wish(wish, form, None, []).spec)
    syntax = TOOL_FORMATS[form].syntax
    begin = syntax.begin + syntax.before_name + "get_weather" + syntax.after_name
    end = syntax.after_arguments + syntax.end

    def takes(text):
        matcher = grammar.matcher()
        return all(matcher.accept(byte) for byte in text.encode()) and matcher.may_end

    assert takes("No call at all.")
    assert takes("So: " + begin + '{"city": "Rome", "days": 2}' + end)
    assert not takes("So: " + begin + '{"city": "Rome", "days": 3}' + end)


def test_tools_without_a_wish_leave_the_text_free():
    assert tool_wish(ToolWish(tools=tools()), "hermes", None, []) is None
    assert list(schema_wishes(ToolWish(tools=tools()))) == []


def test_schemas_are_checked_by_the_name_of_their_field():
    wish = ToolWish(tools=tools(), choice="required")
    fields = [one.field for one in schema_wishes(wish)]
    assert fields == [f"tools[{index}].function.parameters" for index in (0, 2)]


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (ToolWish(tools=tools(), choice="required"), "tool_choice"),
        (ToolWish(tools=tools(strict=True)), "tools[0].function.strict"),
    ],
)
def test_two_grammars_for_one_answer_are_refused(wish, field):
    other = GrammarWish(spec=GrammarSpec("regex", "a"), field="response_format")
    with pytest.raises(ApiError, match="both ask for a grammar") as refused:
        tool_wish(wish, "hermes", other, [])
    assert refused.value.body.param == field


WISHES = {
    "json_schema": ('{"type": "boolean"}', "true"),
    "json_object": ("", "{}"),
    "regex": ("[0-9]{2}", "12"),
    "ebnf": ('root ::= "a" | "b"', "b"),
    "choice": ('["yes", "no"]', "no"),
    "structural_tag": ('{"format": {"type": "const_string", "value": "x"}}', "x"),
}
BEFORE = [
    ("qwen3", None, "", True),
    ("qwen3", None, "<think>so</think>\n\n", True),
    ("qwen3", True, "so</think>", True),
    ("qwen3", True, "", False),
    ("qwen3", False, "", True),
    ("deepseek-r1", None, "so</think>\n", True),
    ("deepseek-r1", None, "", False),
    ("gpt-oss", None, "<|channel|>final<|message|>", True),
    (
        "gpt-oss",
        None,
        "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>",
        True,
    ),
    ("", None, "", True),
    ("", True, "so</think>", False),
]


@pytest.mark.parametrize("kind", WISHES)
@pytest.mark.parametrize(("reasoning", "inside", "before", "fits"), BEFORE)
def test_thoughts_come_before_what_was_asked_for(compiler, kind, reasoning, inside, before, fits):
    text, answer = WISHES[kind]
    if kind == "structural_tag":
        text = json.dumps({"type": "structural_tag", **json.loads(text)})
    wish = GrammarWish(spec=GrammarSpec(kind, text), field="response_format")
    spec = behind_thoughts(wish, thoughts(reasoning, inside, speaks=True)).spec
    matcher = compiler.compile(spec).matcher()
    taken = all(matcher.accept(byte) for byte in (before + answer).encode())
    assert (taken and matcher.may_end) is fits


def test_a_grammar_that_is_the_whole_answer_is_refused_behind_thoughts():
    wish = GrammarWish(spec=GrammarSpec("lark", 'start: "a"'), field="x")
    with pytest.raises(ApiError, match="thinks first"):
        behind_thoughts(wish, thoughts("qwen3", True, speaks=True))
    assert behind_thoughts(wish, []) is wish
