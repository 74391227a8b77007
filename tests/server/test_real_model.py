"""The whole way, once: HTTP to kernels and back with the demo model."""

from __future__ import annotations

import json
import re

import anthropic
import jsonschema
import openai
import pytest

from anychip.engine.client import DEFAULT_BUILDER
from served import config_for, running

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def real(demo_model):
    # The answer's first token is a near-tie (0.08): in bfloat16 rounding decides it.
    limits = {"context_length": 512, "max_total_tokens": 2048, "max_running_requests": 4}
    limits |= {"dtype": "float32", "tool_call_parser": "hermes"}
    config = config_for(demo_model, served_model_name="demo", skip_server_warmup=False, **limits)
    with (
        running(config, builder=DEFAULT_BUILDER) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def ask(client, messages, **fields):
    fields = {"model": "demo", "max_tokens": 24, "temperature": 0, **fields}
    return client.chat.completions.create(messages=messages, **fields)


def test_the_capital_of_france_and_a_second_turn_from_the_cache(real):
    first = ask(real, QUESTION)
    answer = first.choices[0].message.content
    assert "Paris" in answer and first.choices[0].finish_reason == "stop"
    turns = [*QUESTION, {"role": "assistant", "content": answer}]
    second = ask(real, [*turns, {"role": "user", "content": "And of Italy?"}])
    assert second.usage.prompt_tokens_details.cached_tokens >= 32


def test_a_stream_and_a_stop_string(real):
    whole = ask(real, QUESTION).choices[0].message.content
    stream = ask(real, QUESTION, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole
    cut = ask(real, QUESTION, stop=["aris"])
    assert cut.choices[0].message.content == whole.partition("aris")[0]
    assert cut.choices[0].finish_reason == "stop"


def test_a_seed_repeats_a_hot_answer(real):
    hot = {"temperature": 1.5, "seed": 5, "n": 2}
    first, again = ([c.message.content for c in ask(real, QUESTION, **hot).choices] for _ in "ab")
    assert first == again and first[0] != first[1]


CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}


def test_an_answer_in_a_schema_whole_and_streamed(real):
    wanted = {"name": "city", "schema": CITY, "strict": True}
    fields = {"response_format": {"type": "json_schema", "json_schema": wanted}, "max_tokens": 60}
    whole = ask(real, QUESTION, **fields).choices[0]
    assert whole.finish_reason == "stop"
    jsonschema.validate(json.loads(whole.message.content), CITY)
    stream = ask(real, QUESTION, **fields, stream=True)
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert joined == whole.message.content


@pytest.fixture(scope="module")
def claude(real):
    base = str(real.base_url).removesuffix("/v1/")
    with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
        yield client


def test_responses_and_messages_in_a_schema(real, claude):
    form = {"type": "json_schema", "schema": CITY}
    text = {"format": {**form, "name": "city", "strict": True}}
    limits = {"max_output_tokens": 60, "temperature": 0}
    answer = real.responses.create(model="demo", input="And of Spain?", text=text, **limits)
    assert answer.status == "completed" and answer.text.format.name == "city"
    jsonschema.validate(json.loads(answer.output_text), CITY)
    message = claude.messages.create(
        model="demo", max_tokens=60, messages=QUESTION, output_config={"format": form}
    )
    assert message.stop_reason == "end_turn"
    jsonschema.validate(json.loads(message.content[0].text), CITY)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"choice": ["Paris", "London"]}, "Paris|London"),
        ({"guided_regex": "[A-Z]{3}-[0-9]{2}"}, "[A-Z]{3}-[0-9]{2}"),
        ({"structured_outputs": {"grammar": 'root ::= "yes" | "no" "!"{2}'}}, "yes|no!!"),
        ({"ebnf": 'root ::= [0-9]+ ("." [0-9]{2})\n'}, r"\d+\.\d\d"),
    ],
)
def test_forms_in_every_spelling(real, fields, pattern):
    answer = ask(real, QUESTION, extra_body=fields).choices[0]
    assert re.fullmatch(pattern, answer.message.content) or answer.finish_reason == "length"


def test_a_form_that_leaves_nothing_to_say_is_the_clients_mistake(real):
    fields = {"regex": "[0-9]{3}", "allowed_token_ids": [260]}
    with pytest.raises(openai.BadRequestError, match="leave none"):
        ask(real, QUESTION, extra_body=fields)


def test_an_impossible_form_is_a_400_that_names_the_place(real):
    schema = {"type": "object", "properties": {"a": {"type": "array", "contains": {}}}}
    wish = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="/properties/a/contains"):
        ask(real, QUESTION, response_format=wish)


WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


def test_a_forced_call_whole_and_streamed(real):
    fields = {"tools": [{"type": "function", "function": WEATHER}], "tool_choice": "required"}
    fields |= {"parallel_tool_calls": False, "max_tokens": 80}
    whole = ask(real, QUESTION, **fields).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None
    (call,) = whole.message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["parameters"])
    streamed = [chunk.choices[0].delta for chunk in ask(real, QUESTION, **fields, stream=True)]
    parts = [part for delta in streamed for part in delta.tool_calls or ()]
    assert parts[0].function.name == "get_weather"
    assert "".join(part.function.arguments or "" for part in parts) == call.function.arguments


def test_forced_calls_in_responses_and_messages(real, claude):
    tool = {"type": "function", **WEATHER, "strict": True}
    fields = {"input": "Paris?", "max_output_tokens": 80, "parallel_tool_calls": False}
    answer = real.responses.create(
        model="demo",
        tools=[tool],
        tool_choice={"type": "function", "name": "get_weather"},
        **fields,
    )
    (call,) = answer.output
    assert call.type == "function_call" and answer.status == "completed"
    jsonschema.validate(json.loads(call.arguments), WEATHER["parameters"])
    tool = {"name": "get_weather", "input_schema": WEATHER["parameters"]}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    message = claude.messages.create(
        model="demo", max_tokens=80, messages=QUESTION, tools=[tool], tool_choice=choice
    )
    assert message.stop_reason == "tool_use"
    jsonschema.validate(message.content[0].input, WEATHER["parameters"])
