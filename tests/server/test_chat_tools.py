"""Tools and reasoning in /v1/chat/completions, over an engine that says what a test chooses."""

from __future__ import annotations

import json

import openai
import pytest

from anychip.engine.messages import StartError
from anychip.http.errors import ApiError
from anychip.server.chat_formats import AnswerFormats, FormatReader, formats_of
from anychip.server.chat_tools import (
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    MAX_TOOLS,
    ToolWish,
    check_tools,
)
from anychip.settings.model import REASONING_FORMAT_NAMES, TOOL_FORMAT_NAMES
from anychip.text.answer.formats import REASONING_MARKERS, TOOL_FORMATS
from anychip.text.answer.reader import AnswerFormat
from saying_engine import ANSWERS, TEMPLATE
from served import config_for

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
ZURICH = '{"city": "Zürich 🌤"}'
HELLO, ONE_CALL, TWO_CALLS, THOUGHT, THOUGHT_CALL, UNKNOWN, NO_CALL = range(len(ANSWERS))


@pytest.fixture(scope="module")
def client(saying):
    with openai.OpenAI(base_url=saying.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client, said, messages=HI, **fields):
    extra = {"chat_template_kwargs": {"said": str(said)}, **fields.pop("extra_body", {})}
    fields = {"model": "tiny", "tools": [WEATHER], **fields}
    return client.chat.completions.create(messages=messages, extra_body=extra, **fields)


def told(client, said, **fields):
    """The message of the answer, checked to be the same when it is streamed, and its end."""
    whole = ask(client, said, **fields).choices[0]
    text, thought, calls, finish = "", "", {}, None
    for chunk in ask(client, said, stream=True, **fields):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        thought += getattr(delta, "reasoning_content", None) or ""
        for part in delta.tool_calls or ():
            call = calls.setdefault(
                part.index, {"id": part.id, "name": part.function.name, "a": ""}
            )
            call["a"] += part.function.arguments
        finish = chunk.choices[0].finish_reason or finish
    message = whole.message
    assert text == (message.content or "") and finish == whole.finish_reason
    assert thought == (getattr(message, "reasoning_content", None) or "")
    both = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    assert both == [(call["name"], call["a"]) for _, call in sorted(calls.items())]
    ids = [call.id for call in message.tool_calls or ()] + [call["id"] for call in calls.values()]
    assert len(set(ids)) == len(ids) and all(one.startswith("call_") for one in ids)
    return message, both, finish


def test_a_call_is_told_apart_from_the_text(client):
    message, calls, finish = told(client, ONE_CALL)
    assert message.content == "Let me see." and calls == [("get_weather", ZURICH)]
    assert finish == "tool_calls" and json.loads(calls[0][1])["city"] == "Zürich 🌤"


def test_several_calls_or_the_first_alone(client, saying):
    message, calls, finish = told(client, TWO_CALLS)
    assert message.content is None and finish == "tool_calls"
    assert [json.loads(arguments)["city"] for _, arguments in calls] == ["Zürich 🌤", "Genf 🌤"]
    whole = ask(client, TWO_CALLS).usage.completion_tokens
    message, calls, finish = told(client, TWO_CALLS, parallel_tool_calls=False)
    assert calls == [("get_weather", ZURICH)] and finish == "tool_calls"
    cut = ask(client, TWO_CALLS, parallel_tool_calls=False).usage.completion_tokens
    assert cut < whole, "the rest was not generated"
    assert not saying.service.live


@pytest.mark.parametrize("said", [HELLO, UNKNOWN, NO_CALL])
def test_what_is_no_call_of_an_offered_tool_is_text(client, said):
    message, calls, finish = told(client, said)
    assert message.content == ANSWERS[said] and not calls and finish == "stop"


def test_tools_that_must_not_be_called_are_not_shown(client):
    shown = ask(client, ONE_CALL).usage.prompt_tokens
    message, calls, finish = told(client, ONE_CALL, tool_choice="none")
    assert message.content == ANSWERS[ONE_CALL] and not calls and finish == "stop"
    usage = ask(client, ONE_CALL, tool_choice="none").usage
    assert usage.prompt_tokens < shown


def test_reasoning_comes_by_itself(client):
    message, _, finish = told(client, THOUGHT)
    assert message.reasoning_content == "hm, 1 < 2" and message.content == "Yes."
    assert finish == "stop"
    chunks = list(ask(client, THOUGHT, stream=True))
    thoughts = [getattr(c.choices[0].delta, "reasoning_content", None) for c in chunks]
    assert len([one for one in thoughts if one]) > 5
    chunks = ask(client, THOUGHT, stream=True, extra_body={"stream_reasoning": False})
    thoughts = [getattr(c.choices[0].delta, "reasoning_content", None) for c in chunks]
    assert [one for one in thoughts if one] == ["hm, 1 < 2"]


def test_reasoning_may_stay_in_the_text(client):
    message, _, _ = told(client, THOUGHT, extra_body={"separate_reasoning": False})
    assert message.content == "\nhm, 1 < 2\n\n\nYes.", "special tokens are not shown then"
    assert not hasattr(message, "reasoning_content")


def test_reasoning_before_a_call(client):
    message, calls, finish = told(client, THOUGHT_CALL)
    assert message.reasoning_content == "so" and message.content is None
    assert calls == [("get_weather", ZURICH)] and finish == "tool_calls"


def test_an_answer_that_is_cut_short_says_so(client):
    answer = ask(client, ONE_CALL, max_tokens=70).choices[0]
    assert answer.finish_reason == "length"
    assert ZURICH.startswith(answer.message.tool_calls[0].function.arguments)


def test_a_call_and_its_result_go_back_into_the_chat(client):
    called = ask(client, ONE_CALL).choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "18 °C"}
    chat = [*HI, called.model_dump(exclude_none=True), result]
    answer = ask(client, HELLO, chat)
    assert answer.choices[0].message.content == "Hello."
    assert answer.usage.prompt_tokens > ask(client, HELLO).usage.prompt_tokens + len(ZURICH)


def test_a_message_is_continued(client):
    chat = [*HI, {"role": "assistant", "content": "I say 0"}]
    extra = {"continue_final_message": True}
    answer = ask(client, "unused", chat, tools=openai.NOT_GIVEN, extra_body=extra)
    assert answer.choices[0].message.content == "Hello."
    assert answer.usage.prompt_tokens == len("Xuser\nhiXXassistant\nI say 0")


def function(**changes):
    return {"type": "function", "function": {"name": "f", **changes}}


def nested(depth):
    schema = {}
    for _ in range(depth - 1):
        schema = {"a": schema}
    return schema


REFUSED = [
    ({"tools": [{"type": "web_search"}]}, "tools[0]", "only function"),
    ({"tools": [{}]}, "tools[0].type", "must be a text"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "must be an object"),
    ({"tools": [function(name="a b")]}, "tools[0].function.name", "'a b'; it must be"),
    ({"tools": [function(name="x" * 129)]}, "tools[0].function.name", "1 to 128"),
    ({"tools": [function(name=5)]}, "tools[0].function.name", "must be a text"),
    ({"tools": [function(description=5)]}, "tools[0].function.description", "must be a text"),
    ({"tools": [function(), function()]}, "tools[1].function.name", "as another's is"),
    ({"tools": [function(strict=5)]}, "tools[0].function.strict", "true or false"),
    (
        {"tools": [function(strict=True, parameters={"contains": {}})]},
        "tools[0].function.parameters",
        "/contains",
    ),
    ({"tools": [function(parameters=[])]}, "tools[0].function.parameters", "must be an object"),
    (
        {"tools": [function(parameters={"description": "x" * MAX_SCHEMA_BYTES})]},
        "tools[0].function.parameters",
        f"at most {MAX_SCHEMA_BYTES}",
    ),
    (
        {"tools": [function(parameters=nested(MAX_SCHEMA_DEPTH + 1))]},
        "tools[0].function.parameters",
        "nested deeper than 32 levels",
    ),
    ({"tools": [function(name=f"f{n}") for n in range(MAX_TOOLS + 1)]}, "tools", "at most 128"),
    ({"tool_choice": "any"}, "tool_choice", "use auto, none, required"),
    (
        {"tool_choice": "required", "tools": [function(parameters={"not": {}})]},
        "tools[0].function.parameters",
        "/not",
    ),
    ({"tool_choice": "required", "regex": "a"}, "tool_choice", "both ask for a grammar"),
    ({"tool_choice": "required", "tools": []}, "tool_choice", "needs tools"),
    ({"tool_choice": {"type": "x"}}, "tool_choice", "only function"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function", "must be an object"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        "names 'g', which is not among tools",
    ),
    ({"continue_final_message": True}, "continue_final_message", "role 'assistant'"),
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
        "exclude each other",
    ),
    ({"chat_template_kwargs": {"tools": []}}, "tools", "set by the server"),
]


@pytest.mark.parametrize(("fields", "param", "text"), REFUSED)
def test_what_cannot_be_obeyed_is_refused_by_name(saying, fields, param, text):
    with saying.http() as http:
        body = {"messages": HI, "tools": [WEATHER], **fields}
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param and text in error["message"]


def test_tools_that_no_template_shows_are_refused_unless_a_call_is_forced():
    formats = AnswerFormats(tools="hermes")
    with pytest.raises(ApiError, match="does not show them to the model"):
        check_tools(ToolWish(tools=[WEATHER]), formats, shown=False)
    assert check_tools(ToolWish(tools=[WEATHER]), formats, shown=True) == ("get_weather",)
    for choice in ("required", "none"):
        check_tools(ToolWish(tools=[WEATHER], choice=choice), formats, shown=False)


def test_markup_of_a_forced_call_that_was_cut_is_not_said():
    form = AnswerFormat(tools="hermes", names=("get_weather",))
    for only_calls, said in ((True, ""), (False, '<tool_call>\n{"name": "get_w')):
        reader = FormatReader(0, form, parallel=True, only_calls=only_calls)
        events = [*reader.feed('<tool_call>\n{"name": "get_w'), *reader.close()]
        assert "".join(event.text for event in events) == said


def test_the_largest_that_is_allowed_is_taken(saying):
    tools = [function(name="x" * 128, parameters=nested(MAX_SCHEMA_DEPTH), strict=False)]
    with saying.http() as http:
        body = {"messages": HI, "tools": tools, "chat_template_kwargs": {"said": "0"}}
        assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_a_server_that_reads_no_calls_refuses_tools(server):
    with server.http() as http:
        body = {"messages": HI, "tools": [WEATHER]}
        error = http.post("/v1/chat/completions", json=body).json()["error"]
        assert error["code"] == "no_tool_call_parser" and "--tool-call-parser" in error["message"]
        body["tool_choice"] = "none"
        assert http.post("/v1/chat/completions", json={**body, "max_tokens": 1}).status_code == 200


def config(**changes):
    return config_for("/model", **changes)


def test_formats_are_named_or_the_templates():
    assert formats_of(config(), TEMPLATE).tools == "hermes"
    assert formats_of(config(), TEMPLATE).reasoning == "qwen3"
    named = formats_of(config(tool_call_parser="mistral", reasoning_parser="none"), TEMPLATE)
    assert (named.tools, named.reasoning) == ("mistral", "")
    assert formats_of(config(), None).tools == ""
    with pytest.raises(StartError, match="gpt-oss reads both"):
        formats_of(config(tool_call_parser="gpt-oss"), TEMPLATE)
    alone = config(tool_call_parser="gpt-oss", reasoning_parser="none")
    assert formats_of(alone, TEMPLATE).tools == "gpt-oss"


def test_the_flags_name_every_format():
    assert set(TOOL_FORMAT_NAMES) == set(TOOL_FORMATS)
    assert set(REASONING_FORMAT_NAMES) == set(REASONING_MARKERS)
