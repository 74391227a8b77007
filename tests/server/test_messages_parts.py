from __future__ import annotations

import msgspec
import pytest

from anychip.http.errors import ApiError
from anychip.server.chat_call import ChatUsage
from anychip.server.chat_events import (
    End,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from anychip.server.messages_input import messages_of, tools_of
from anychip.server.messages_protocol import CountRequest
from anychip.server.messages_writer import MessageWriter

USAGE = ChatUsage(prompt_tokens=5, completion_tokens=9, cached_tokens=2, reasoning_tokens=4)
THINKS_AND_CALLS = [
    ReasoningDelta(choice=0, text="h"),
    ReasoningDelta(choice=0, text="m"),
    TextDelta(choice=0, text="a"),
    ToolCallStart(choice=0, index=0, id="call_a", name="f"),
    ToolCallArguments(choice=0, index=0, delta='{"x":'),
    ToolCallArguments(choice=0, index=0, delta="1}"),
    ToolCallStart(choice=0, index=1, id="call_b", name="g"),
    ToolCallArguments(choice=0, index=1, delta='{"y'),
    End(choice=0, finish="tool_calls"),
]


def asked(*messages, **fields):
    return CountRequest(messages=list(messages), **fields)


def test_thoughts_words_and_calls_are_blocks_in_their_order():
    writer = MessageWriter("msg_1", "m")
    events = [event for told in THINKS_AND_CALLS for event in writer.take(told)]
    told = [
        (event.__struct_config__.tag.removeprefix("content_block_"), event.index)
        for event in events
    ]
    assert told == [
        ("start", 0),
        ("delta", 0),
        ("delta", 0),
        ("stop", 0),
        ("start", 1),
        ("delta", 1),
        ("stop", 1),
        ("start", 2),
        ("delta", 2),
        ("delta", 2),
        ("stop", 2),
        ("start", 3),
        ("delta", 3),
        ("stop", 3),
    ]
    message = msgspec.to_builtins(writer.message(USAGE))
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "a", "citations": None},
        {"type": "tool_use", "id": "call_a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "call_b", "name": "g", "input": {}},  # it was cut short
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["input_tokens"] == 3 and message["usage"]["output_tokens"] == 9
    parts = [event.delta for event in events if hasattr(event, "delta")]
    assert [msgspec.to_builtins(part)["type"] for part in parts][-3:] == ["input_json_delta"] * 3


def test_turns_with_tools_become_messages_of_chats():
    said = messages_of(
        asked(
            {"role": "user", "content": "weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "I look"},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                    {"type": "tool_use", "id": "b", "name": "g", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "sun"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [{"type": "text", "text": "no"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        )
    )
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert said[1]["tool_calls"][0] == call and len(said[1]["tool_calls"]) == 2
    assert (said[1]["content"], said[1]["reasoning_content"]) == ("I look", "hm")
    assert said[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no"},
        {"role": "user", "content": "go on"},
    ]


def test_results_alone_are_followed_by_no_empty_turn():
    result = {"type": "tool_result", "tool_use_id": "a"}
    said = messages_of(asked({"role": "user", "content": [result]}))
    assert said == [{"role": "tool", "tool_call_id": "a", "content": ""}]


def test_results_belong_to_users_and_uses_to_assistants():
    result = {"type": "tool_result", "tool_use_id": "a"}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    for role, block in (("assistant", result), ("user", use)):
        with pytest.raises(ApiError, match=rf"content\[0\] is of type '{block['type']}'"):
            messages_of(asked({"role": role, "content": [block]}))


def test_tools_become_tools_of_chats():
    schema = {"type": "object", "properties": {}}
    tool = {"name": "f", "description": "d", "input_schema": schema}
    choice = {"type": "tool", "name": "f", "disable_parallel_tool_use": True}
    wish = tools_of(asked(tools=[tool], tool_choice=choice))
    function = {"name": "f", "description": "d", "parameters": schema}
    assert wish.tools == [{"type": "function", "function": function}]
    assert (wish.choice, wish.name, wish.parallel) == ("named", "f", False)
    assert tools_of(asked(tools=[tool], tool_choice={"type": "any"})).choice == "required"
    with pytest.raises(ApiError, match=r"tool_choice\.name"):
        tools_of(asked(tool_choice={"type": "tool"}))
