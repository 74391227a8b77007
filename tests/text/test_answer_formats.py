"""Calls and thoughts read out of answers, in every format, however the text is cut."""

from __future__ import annotations

import json
import sys

import pytest
from answer_samples import CALLS, NAMES, THOUGHTS, joined, read, short, tools
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.text.answer.events import CallArguments, CallStart, Text, Thought
from anychip.text.answer.formats import (
    REASONING_MARKERS,
    TOOL_FORMATS,
    reasoning_format_of,
    tool_format_of,
)
from anychip.text.answer.reader import AnswerFormat, AnswerReader
from anychip.text.answer.thinking import left_open, opened_by

SAMPLES = [(name, text) for name, samples in CALLS.items() for text in samples]
MINDS = [(name, inside, text) for (name, inside), texts in THOUGHTS.items() for text in texts]


def pieces(text, sizes):
    """The text cut into deltas of these sizes, again and again."""
    cuts, at = [], 0
    while at < len(text):
        size = sizes[len(cuts) % len(sizes)]
        cuts.append(text[at : at + size])
        at += size
    return cuts


@pytest.mark.parametrize(("name", "text"), SAMPLES)
def test_calls_are_read_whole_and_in_single_characters(name, text):
    assert short(read(tools(name), [text])) == CALLS[name][text]
    assert short(read(tools(name), text)) == CALLS[name][text]


@pytest.mark.parametrize(("name", "inside", "text"), MINDS)
def test_thoughts_are_read_whole_and_in_single_characters(name, inside, text):
    form = AnswerFormat(reasoning=name, inside=inside)
    expected = THOUGHTS[name, inside][text]
    assert short(read(form, [text])) == expected and short(read(form, text)) == expected


FRAGMENTS = [
    *TOOL_FORMATS["hermes"].markers,
    *TOOL_FORMATS["mistral"].markers,
    *TOOL_FORMATS["deepseekv3"].markers,
    *TOOL_FORMATS["pythonic"].markers,
    *TOOL_FORMATS["gpt-oss"].markers,
    *REASONING_MARKERS["qwen3"],
    *(
        '{"name": "f", "arguments": {"a": 1}}',
        '{"name": "f"',
        ', "arguments": ',
        "{",
        "}",
        "[",
        "]",
    ),
    *(
        "f",
        "function",
        "commentary to=functions.f",
        "analysis",
        "final",
        "f(",
        "a=1",
        ")",
        ",",
        ";",
    ),
    *('"', "'", "\\", " ", "\n", "```", "json", "é🤖", "null", ":", "<", "text"),
]
ANSWER = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)
FORMATS = st.sampled_from([(name, "") for name in TOOL_FORMATS]
    + [("hermes", "qwen3"), ("deepseekv3", "deepseek-r1"), ("gpt-oss", "gpt-oss")])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(FORMATS, ANSWER, SIZES, st.booleans())
def test_any_cut_of_any_text_gives_the_same_events(form, text, sizes, stream):
    form = tools(*form, stream_thoughts=stream)
    whole = read(form, [text] if text else [])
    assert read(form, pieces(text, sizes)) == whole == read(form, text)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([name for name in TOOL_FORMATS if name != "gpt-oss"]), ANSWER, SIZES)
def test_nothing_is_lost_or_doubled_where_no_tool_may_be_called(name, text, sizes):
    form = AnswerFormat(tools=name, names=())
    assert read(form, pieces(text, sizes)) == ([Text(text)] if text else [])


ARGUMENTS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6)
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
        max_size=3), max_leaves=6,
    ),
    max_size=3,
)  # fmt: skip
CALL = st.tuples(st.sampled_from(NAMES), ARGUMENTS)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(TOOL_FORMATS)), st.lists(CALL, min_size=1, max_size=3), SIZES)
def test_a_forced_call_is_read_by_its_own_format(name, calls, sizes):
    syntax = TOOL_FORMATS[name].syntax
    calls = calls if syntax.between is not None else calls[:1]
    spelled = [(called, json.dumps(given, ensure_ascii=False)) for called, given in calls]
    texts = [syntax.before_name + called + syntax.after_name + given + syntax.after_arguments
             for called, given in spelled]  # fmt: skip
    text = syntax.begin + (syntax.between or "").join(texts) + syntax.end
    assert short(read(tools(name), pieces(text, sizes))) == spelled


KEYWORDS = st.dictionaries(st.sampled_from("abc"), ARGUMENTS | st.text() | st.none(), max_size=3)


@settings(max_examples=200, deadline=None)
@given(KEYWORDS, SIZES)
def test_python_literals_become_the_same_json(keywords, sizes):
    inside = ", ".join(f"{name}={value!r}" for name, value in keywords.items())
    told = short(read(tools("pythonic"), pieces(f"[f({inside})]", sizes)))
    assert [name for name, _ in told] == ["f"] and json.loads(told[0][1]) == keywords


def test_arguments_come_as_they_are_written():
    reader = AnswerReader(tools("hermes"), lambda: "id")
    events = [
        reader.feed(delta) for delta in ['<tool_call>{"name": "f", ', '"arguments": {"a": "x']
    ]
    assert events == [[], [CallStart(0, "id", "f"), CallArguments(0, '{"a": "x')]]
    assert reader.feed(" y") == [CallArguments(0, " y")]
    assert reader.feed('"}}</tool_') == [CallArguments(0, '"}')]
    assert reader.feed("call>") == reader.flush() == []


def test_text_and_thought_come_at_once():
    reader = AnswerReader(tools("hermes", "qwen3"))
    told = [reader.feed(delta) for delta in ["<think>a", " b", "\n</thi", "nk>", "\nc ", "d<"]]
    assert told == [[Thought("a")], [Thought(" b")], [], [], [Text("c")], [Text(" d")]]
    assert reader.feed("b") == [Text("<b")] and reader.flush() == []


def test_a_thought_that_is_not_to_be_streamed_comes_whole():
    reader = AnswerReader(AnswerFormat(reasoning="qwen3", stream_thoughts=False))
    assert [reader.feed(d) for d in ["<think>a", " b", "</think>", "c"]] == [
        [], [], [], [Thought("a b"), Text("c")]]  # fmt: skip
    reader = AnswerReader(AnswerFormat(reasoning="deepseek-r1", stream_thoughts=False))
    assert reader.feed("a b") == [] and reader.flush() == [Thought("a b")]


def test_thought_text_and_calls_in_one_answer():
    form = tools("hermes", "qwen3")
    text = '<think>\nhm <tool_call></think>\n\nOk.\n<tool_call>{"name": "f"}</tool_call>'
    assert short(read(form, [text])) == [["hm <tool_call>"], "Ok.", ("f", "{}")]
    form = tools("gpt-oss", "gpt-oss")
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to="
    text += "functions.f <|constrain|>json<|message|>{}"
    assert short(read(form, [text])) == [["hm"], ("f", "{}")]


def test_each_call_has_an_id_of_its_own():
    for name, length in (("hermes", 29), ("mistral", 9)):
        ids = set()
        for _ in range(20):
            events = AnswerReader(tools(name)).feed(
                '[TOOL_CALLS] [{"name": "f"}' if name == "mistral" else '<tool_call>{"name": "f"}'
            )
            ids.add(next(event.id for event in events if isinstance(event, CallStart)))
        assert len(ids) == 20 and {len(one) for one in ids} == {length}
        assert all(one.replace("call_", "").isalnum() for one in ids)


def calls_made(work):
    """How many functions of Python were called: a measure of work that no clock disturbs."""
    count = 0

    def note(frame, kind, argument):
        nonlocal count
        count += kind == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


HARD = {
    "hermes": ["<tool_call>{", '<tool_call>{"a":', "<tool_call>", "<", " ",
               '<tool_call>{"name": "f", "arguments": {"a": [', '<tool_call>{"arguments": "'],
    "llama3": ["<|python_tag|>{", '{"name": "f"};'],
    "mistral": ["[TOOL_CALLS]", "[TOOL_CALLS] [{", "[TOOL_CALLS]f"],
    "deepseekv3": ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function"],
    "pythonic": ["[f(a=[", "<|python_start|>[", "[f(a='"],
    "gpt-oss": ["<|channel|>", "<|start|>", "<|channel|>x<|message|>", "to="],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, one) for name in HARD for one in HARD[name]])
@pytest.mark.parametrize("size", [7, 10**6])
def test_text_that_is_hard_to_read_costs_linear_time(name, text, size):
    costs = [calls_made(lambda n=n: read(tools(name), pieces(text * n, [size]))) for n in (60, 120)]
    assert costs[1] <= 2.2 * costs[0] + 200


TEMPLATES = {
    "For each function call, return <tool_call>\n{\"name\": <function-name>": "hermes",
    "<tool_call>\n<function=example>\n<parameter=x>": None,
    "<tool_call>{name}<arg_key>": None,
    "{{ '[TOOL_CALLS] ' }}": "mistral",
    "{{'<｜tool▁calls▁begin｜>' + '```json'}}": "deepseekv3",
    "{{'<｜tool▁calls▁begin｜>'}}": "deepseekv31",
    "{{ '<|python_tag|>' }}": "llama3",
    "<|start_header_id|> Respond in the format {\"name\": n, \"parameters\": d}": "llama3",
    "<|python_tag|> [func_name1(params_name1=params_value1)]": "pythonic",
    "<|python_start|>": "pythonic",
    "<|channel|>commentary to=functions.x": "gpt-oss",
    "{{ messages }}": None,
    None: None,
}  # fmt: skip


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_format_of_calls_is_known_by_the_template(template):
    assert tool_format_of(template) == TEMPLATES[template]


def test_the_format_of_reasoning_is_known_by_the_template():
    assert reasoning_format_of("<|im_start|>assistant\n<think>\n") == "qwen3"
    assert reasoning_format_of("<｜Assistant｜><think>\n") == "deepseek-r1"
    assert reasoning_format_of("<|channel|>analysis") == "gpt-oss"
    assert reasoning_format_of("{{ messages }}") is None and reasoning_format_of(None) is None


def test_whether_a_prompt_opened_a_thought():
    assert opened_by("<|im_start|>assistant\n<think>\n") is True
    assert opened_by("assistant\n<think>\n\n</think>\n\n") is False
    assert opened_by("why does it write <think>?\nassistant\n") is None
    assert left_open("<think>so ") and not left_open("<think>so</think> Hi") and not left_open("Hi")


def test_the_samples_tell_of_every_format():
    assert set(CALLS) == set(TOOL_FORMATS) and {n for n, _ in THOUGHTS} == set(REASONING_MARKERS)
    assert joined([Text("a"), Text("b"), CallStart(0, "i", "f")])[0] == Text("ab")
