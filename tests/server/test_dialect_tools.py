"""Tools and reasoning in responses and messages, over an engine that says what a test chooses."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from saying_engine import ANSWERS

HELLO, ONE_CALL, TWO_CALLS, THOUGHT, THOUGHT_CALL = range(5)
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
FUNCTION = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
TOOL = {"name": "get_weather", "input_schema": SCHEMA}
ZURICH = {"city": "Zürich 🌤"}


@pytest.fixture(scope="module")
def client(saying):
    with openai.OpenAI(base_url=saying.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def claude(saying):
    with anthropic.Anthropic(base_url=saying.url, api_key="none", max_retries=0) as client:
        yield client


def saying_so(said):
    return {"chat_template_kwargs": {"said": str(said)}}


def respond(client, said, given="hi", **fields):
    fields = {"model": "tiny", "tools": [FUNCTION], **fields}
    return client.responses.create(input=given, extra_body=saying_so(said), **fields)


def answer(claude, said, messages=HI, **fields):
    fields = {"model": "tiny", "max_tokens": 500, "tools": [TOOL], **fields}
    return claude.messages.create(messages=messages, extra_body=saying_so(said), **fields)


def prompt_tokens(client, messages):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    chat = client.chat.completions.create(
        model="tiny", messages=messages, tools=tools, extra_body=saying_so(HELLO)
    )
    return chat.usage.prompt_tokens


def chat_turns(call_id, text="Let me see."):
    """The turns of one call and its result as a chat tells them."""
    function = {"name": "get_weather", "arguments": json.dumps(ZURICH, ensure_ascii=False)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        *HI,
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "sun"},
    ]


def test_a_round_of_a_tool_in_responses(client):
    first = respond(client, ONE_CALL)
    said, call = first.output
    assert (said.content[0].text, first.status) == ("Let me see.", "completed")
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "get_weather",
        ZURICH,
    )
    assert first.tools[0].name == "get_weather" and first.tool_choice == "auto"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    whole = [*HI, *[item.model_dump() for item in first.output], result]
    second = respond(client, HELLO, whole)
    assert second.output_text == "Hello."
    assert second.usage.input_tokens == prompt_tokens(client, chat_turns(call.call_id))
    third = respond(client, HELLO, [result], previous_response_id=first.id)
    assert third.usage.input_tokens == second.usage.input_tokens


def test_calls_are_streamed_in_responses(client):
    fields = {"model": "tiny", "tools": [FUNCTION], "extra_body": saying_so(TWO_CALLS)}
    with client.responses.stream(input="hi", **fields) as stream:
        parts = [e for e in stream if e.type == "response.function_call_arguments.delta"]
        calls = stream.get_final_response().output
    assert len(parts) > 2 and [call.type for call in calls] == ["function_call"] * 2
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Zürich 🌤", "Genf 🌤"]
    alone = respond(client, TWO_CALLS, parallel_tool_calls=False)
    assert len(alone.output) == 1 and alone.parallel_tool_calls is False
    silent = respond(client, ONE_CALL, tool_choice="none")
    assert silent.output_text == ANSWERS[ONE_CALL]


def test_reasoning_is_an_item_of_a_response_and_goes_into_the_next_turn(client):
    first = respond(client, THOUGHT)
    thought, said = first.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "hm, 1 < 2")
    assert said.content[0].text == "Yes."
    details = first.usage.output_tokens_details
    assert 8 < details.reasoning_tokens < first.usage.output_tokens
    events = list(respond(client, THOUGHT, stream=True))
    parts = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(parts) == "hm, 1 < 2" and len(parts) > 5
    whole = [*HI, *[item.model_dump() for item in first.output], *HI]
    assert respond(client, HELLO, whole).output_text == "Hello."


def test_a_round_of_a_tool_in_messages(claude, client):
    first = answer(claude, ONE_CALL)
    assert first.stop_reason == "tool_use"
    said, call = first.content
    assert (said.text, call.name, call.input) == ("Let me see.", "get_weather", ZURICH)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sun"}
    turns = [
        *HI,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = answer(claude, HELLO, turns)
    assert (second.content[0].text, second.stop_reason) == ("Hello.", "end_turn")
    expected = prompt_tokens(client, chat_turns(call.id))
    assert second.usage.input_tokens + second.usage.cache_read_input_tokens == expected
    counted = claude.messages.count_tokens(
        model="tiny", messages=turns, tools=[TOOL], extra_body=saying_so(HELLO)
    )
    assert counted.input_tokens == expected


def test_calls_are_streamed_in_messages(claude):
    fields = {"model": "tiny", "max_tokens": 500, "tools": [TOOL]}
    body = saying_so(TWO_CALLS)
    with claude.messages.stream(messages=HI, extra_body=body, **fields) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert [block.input["city"] for block in message.content] == ["Zürich 🌤", "Genf 🌤"]
    assert message.stop_reason == "tool_use"
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    alone = answer(claude, TWO_CALLS, tool_choice=choice)
    assert [block.input for block in alone.content] == [ZURICH]
    silent = answer(claude, ONE_CALL, tool_choice={"type": "none"})
    assert [block.text for block in silent.content] == [ANSWERS[ONE_CALL]]


def test_thoughts_are_blocks_of_a_message(claude):
    message = answer(claude, THOUGHT_CALL, thinking={"type": "adaptive"})
    thought, call = message.content
    assert (thought.type, thought.thinking, call.input) == ("thinking", "so", ZURICH)
    with claude.messages.stream(
        model="tiny", max_tokens=500, messages=HI, extra_body=saying_so(THOUGHT)
    ) as stream:
        parts = [event.thinking for event in stream if event.type == "thinking"]
        message = stream.get_final_message()
    assert "".join(parts) == "hm, 1 < 2" and message.content[1].text == "Yes."
    turns = [*HI, {"role": "assistant", "content": message.content}, *HI]
    assert answer(claude, HELLO, turns).content[0].text == "Hello."


def test_an_answer_goes_on_with_the_assistants_last_text(claude):
    turns = [*HI, {"role": "assistant", "content": "I say 0"}]
    message = claude.messages.create(model="tiny", max_tokens=500, messages=turns)
    assert message.content[0].text == "Hello."
    calls = [{"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}]
    for last in (calls, ""):
        with pytest.raises(anthropic.BadRequestError, match="no text that could be gone on with"):
            answer(claude, HELLO, [*HI, {"role": "assistant", "content": last}])


def test_wrong_tools_are_refused_by_the_dialects_own_names(claude, client):
    for tools, named in (
        ([{**FUNCTION, "name": "no blanks"}], "tools[0].name"),
        ([FUNCTION, FUNCTION], "tools[1].name"),
        ([{**FUNCTION, "strict": True, "parameters": UNIQUE}], "tools[0].parameters"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            respond(client, HELLO, tools=tools)
        assert caught.value.param == named
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[1\]\.name is 'get_weather'"):
        answer(claude, HELLO, tools=[TOOL, TOOL])
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\]\.input_schema at /prop"):
        answer(claude, HELLO, tools=[{**TOOL, "input_schema": UNIQUE}], tool_choice={"type": "any"})


def test_how_a_model_thinks_is_the_templates_to_say(claude, client):
    """This template reads no such variable, and the model thinks when it likes."""
    with pytest.raises(openai.BadRequestError, match="reads no reasoning_effort") as caught:
        respond(client, HELLO, reasoning={"effort": "low"})
    assert caught.value.param == "reasoning.effort"
    with pytest.raises(anthropic.BadRequestError, match="thinking: this model's chat template"):
        answer(claude, HELLO, thinking={"type": "disabled"})
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.effort: "):
        answer(claude, HELLO, output_config={"effort": "low"})
