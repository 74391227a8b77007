"""What is read of a call: every dialect, beginnings as bytes, and never an exception."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.router.asking import KEY_HEADER, MOST_PREFIX, Ask, read_ask

CHAT = "/v1/chat/completions"


def ask(path, body, headers=None):
    return read_ask(path, headers or {}, json.dumps(body).encode())


def user(text):
    return {"role": "user", "content": text}


def test_chat_says_model_lengths_choices_and_stream():
    found = ask(
        CHAT,
        {
            "model": "m",
            "messages": [user("x" * 400)],
            "max_tokens": 7,
            "max_completion_tokens": 9,
            "n": 3,
            "stream": True,
            "rid": "mine",
        },
    )
    assert (found.model, found.max_tokens, found.choices, found.stream) == ("m", 9, 3, True)
    assert (found.prompt_tokens, found.rid, found.path) == (100, "mine", CHAT)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [user("hello there")]}),
        (CHAT, {"messages": [user([{"type": "text", "text": "hello there"}])]}),
        ("/v1/messages", {"max_tokens": 5, "messages": [user("hello there")]}),
        ("/v1/responses", {"input": "hello there"}),
        ("/v1/responses", {"input": [{"type": "message", **user("hello there")}]}),
        (
            "/v1/responses",
            {"input": [{"id": "x", **user([{"type": "input_text", "text": "hello there"}])}]},
        ),
    ],
)
def test_a_users_words_are_the_same_bytes_in_every_dialect_of_chat(path, body):
    found = ask(path, body)
    assert found.prompt == b"\x1euser\x1fhello there"
    assert found.prompt_tokens == 3


@pytest.mark.parametrize("field", ["instructions", "system"])
def test_instructions_stand_before_the_messages(field):
    found = ask("/v1/messages", {"messages": [user("hi")], field: "be kind"})
    assert found.prompt == b"\x1esystem\x1fbe kind\x1euser\x1fhi"


def test_tools_and_calls_belong_to_the_prompt():
    first = ask(CHAT, {"tools": [{"name": "a"}], "messages": [user("hi")]})
    other = ask(CHAT, {"tools": [{"name": "b"}], "messages": [user("hi")]})
    plain = ask(CHAT, {"messages": [user("hi")]})
    assert len({first.prompt, other.prompt, plain.prompt}) == 3
    assert first.prompt_tokens > plain.prompt_tokens
    called = user("hi") | {"tool_calls": [{"id": "1"}]}
    assert ask(CHAT, {"messages": [called]}).prompt != plain.prompt


def test_a_conversation_that_goes_on_begins_with_the_one_before():
    turns = [user("one"), {"role": "assistant", "content": "two"}, user("three")]
    prompts = [ask(CHAT, {"messages": turns[:count]}).prompt for count in (1, 2, 3)]
    assert prompts[1].startswith(prompts[0]) and prompts[2].startswith(prompts[1])


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_ids_are_counted_and_kept_as_int32(path):
    field = "prompt" if path == "/v1/completions" else "input_ids"
    found = ask(path, {field: [1, 2, 70000]})
    assert found.prompt_tokens == 3
    assert found.prompt == struct.pack("<3i", 1, 2, 70000)


def test_several_prompts_are_several_answers():
    found = ask("/v1/completions", {"prompt": ["abcd" * 10, "x" * 8], "n": 2})
    assert (found.choices, found.prompt_tokens) == (4, 12)
    assert found.prompt == b"\x1f" + b"abcd" * 10
    assert ask("/v1/completions", {"prompt": [[1, 2], [3]]}).prompt_tokens == 3


def test_the_native_call_has_its_parameters_in_a_place_of_their_own():
    params = {"max_new_tokens": 11, "n": 2}
    found = ask("/generate", {"text": "hi", "sampling_params": params, "rid": "r"})
    assert (found.max_tokens, found.choices, found.rid) == (11, 2, "r")


def test_a_response_says_what_it_follows():
    found = ask("/v1/responses", {"input": "hi", "previous_response_id": "resp_1"})
    assert (found.follows, found.max_tokens) == ("resp_1", None)
    assert ask("/v1/responses", {"input": "hi", "max_output_tokens": 5}).max_tokens == 5


@pytest.mark.parametrize(
    ("body", "headers", "key"),
    [
        ({"user": "u"}, {KEY_HEADER: "h"}, "h"),
        ({"user": "u", "prompt_cache_key": "p"}, {}, "p"),
        ({"user": "u"}, {}, "u"),
        ({"metadata": {"user_id": "a"}}, {}, "a"),
        ({"user": ["u"], "metadata": "none"}, {KEY_HEADER: ""}, None),
    ],
)
def test_the_key_is_the_headers_or_else_the_bodys(body, headers, key):
    assert ask(CHAT, body, headers).key == key


def test_only_the_beginning_of_a_long_prompt_is_kept_and_all_of_it_is_counted():
    text = "ab" * MOST_PREFIX
    found = ask("/v1/completions", {"prompt": text})
    assert len(found.prompt) == MOST_PREFIX
    assert found.prompt_tokens == len(text) // 4
    ids = ask("/generate", {"input_ids": list(range(MOST_PREFIX // 2))})
    assert (len(ids.prompt), ids.prompt_tokens) == (MOST_PREFIX, MOST_PREFIX // 2)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"']
)
def test_what_is_no_call_leaves_the_defaults(body):
    assert read_ask(CHAT, {KEY_HEADER: "k"}, body) == Ask(CHAT, key="k")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": True, "n": "2", "stream": 1, "model": 5},
        {"max_tokens": -4, "n": 0, "stream": "true", "model": ""},
        {"max_tokens": 2.5, "n": [2], "sampling_params": [{"n": 2}]},
    ],
)
def test_fields_of_the_wrong_kind_are_as_if_they_were_not_there(fields):
    assert ask(CHAT, fields) == Ask(CHAT)


def test_ids_that_are_none_are_left_to_the_worker():
    assert ask("/generate", {"input_ids": [1, 2**40]}) == Ask("/generate", prompt_tokens=2)
    assert ask("/generate", {"input_ids": [1, "a"]}).prompt == b""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# fmt: off
FIELDS = [
    "messages", "model", "prompt", "text", "input",
    "input_ids", "n", "max_tokens", "stream", "user",
    "metadata", "tools", "system", "instructions", "sampling_params",
    "rid", "previous_response_id", "prompt_cache_key",
]
# fmt: on


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.binary(max_size=40))
def test_nothing_raises_and_every_field_keeps_its_kind(body, rubbish):
    message = {"role": body.get("model"), "content": body.get("input"), "more": body.get("tools")}
    for told in (body, body | {"messages": [message]}):
        found = ask(CHAT, told)
        assert found.prompt_tokens >= 0 and found.choices >= 1
        assert found.max_tokens is None or found.max_tokens >= 0
        assert isinstance(found.stream, bool) and len(found.prompt) <= MOST_PREFIX
    read_ask(CHAT, {}, rubbish)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30), st.integers(0, 30))
def test_equal_beginnings_are_equal_bytes(ids, cut):
    whole, part = ask("/generate", {"input_ids": ids}), ask("/generate", {"input_ids": ids[:cut]})
    assert whole.prompt.startswith(part.prompt)
    assert len(part.prompt) == 4 * len(ids[:cut])
