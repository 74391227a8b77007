from __future__ import annotations

import json

import anthropic
import pytest

from served import bearer, config_for, running, wait_until

FACE = "\U0001f642"
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"format": {"type": "json_schema", "schema": {"type": "array", "uniqueItems": True}}}
PROMPT_TOKENS = 20  # one a byte and one a special token
EVENTS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def ask(client, messages=HI, **fields):
    fields = {"model": "tiny", "max_tokens": 8, **fields}
    return client.messages.create(messages=messages, **fields)


def refusal(client, status=anthropic.BadRequestError, **fields):
    with pytest.raises(status) as caught:
        ask(client, **fields)
    assert caught.value.body["type"] == "error"
    return caught.value.body["error"]


def tokens(client, messages=HI, **fields):
    return client.messages.count_tokens(model="tiny", messages=messages, **fields).input_tokens


def test_a_chat_is_answered(claude):
    answer = ask(claude, [{"role": "user", "content": "say"}], metadata={"user_id": "me"})
    assert answer.id.startswith("msg_") and answer.type == "message"
    assert (answer.role, answer.model) == ("assistant", "tiny")
    (block,) = answer.content
    assert (block.type, block.text) == ("text", FACE + "abcd")
    assert (answer.stop_reason, answer.stop_sequence) == ("max_tokens", None)
    used = answer.usage
    assert used.input_tokens + used.cache_read_input_tokens == PROMPT_TOKENS + 1
    assert used.output_tokens == 8


def test_an_answer_ends_by_itself_or_at_a_stop_sequence(claude):
    answer = ask(claude, extra_body={"chat_template_kwargs": {"ending": "}"}})
    assert (answer.content[0].text, answer.stop_reason) == ("~", "end_turn")
    answer = ask(claude, stop_sequences=["x", "c"])
    assert (answer.content[0].text, answer.stop_reason) == (FACE + "ab", "stop_sequence")
    assert answer.stop_sequence == "c"


def test_a_stream_tells_the_same(claude):
    events = list(ask(claude, stream=True))
    kinds = [event.type for event in events]
    assert list(dict.fromkeys(kinds)) == EVENTS
    text = "".join(e.delta.text for e in events if e.type == "content_block_delta")
    assert text == FACE + "abcd"
    begun, ended = events[0].message, events[-2]
    assert begun.content == [] and begun.stop_reason is None and begun.usage.output_tokens == 0
    assert ended.delta.stop_reason == "max_tokens" and ended.usage.output_tokens == 8
    assert ended.usage.input_tokens + ended.usage.cache_read_input_tokens == PROMPT_TOKENS
    with claude.messages.stream(model="tiny", messages=HI, max_tokens=6) as stream:
        assert "".join(stream.text_stream) == FACE + "ab"
        assert stream.get_final_message().stop_reason == "max_tokens"


def test_a_stream_pings_behind_its_start(http):
    body = {"messages": HI, "max_tokens": 1, "stream": True}
    events = http.post("/v1/messages", json=body).text.strip().split("\n\n")
    assert events[0].startswith("event: message_start\ndata: {")
    assert events[1] == 'event: ping\ndata: {"type":"ping"}'
    assert events[-1] == 'event: message_stop\ndata: {"type":"message_stop"}'


def test_the_second_turn_hits_the_cache(claude):
    first = [{"role": "user", "content": "a question that claude was not asked before"}]
    answer = ask(claude, first)
    assert answer.usage.cache_read_input_tokens < 16
    said = answer.model_dump()["content"]  # as clients send it back
    second = ask(claude, [*first, {"role": "assistant", "content": said}, *HI])
    assert second.usage.cache_read_input_tokens >= tokens(claude, first)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"system": "x"}, [{"role": "system", "content": "x"}, *HI]),
        (
            {"system": [{"type": "text", "text": t} for t in ("x", "y")]},
            [{"role": "system", "content": "x\n\ny"}, *HI],
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "h", "cache_control": {"type": "ephemeral"}},
                            {"type": "text", "text": "i", "citations": None},
                        ],
                    }
                ]
            },
            HI,
        ),
        (
            {"messages": [*HI, {"role": "system", "content": "x"}, *HI]},
            [*HI, {"role": "system", "content": "x"}, *HI],
        ),
        ({"messages": [*HI, *HI]}, [{"role": "user", "content": "hi\n\nhi"}]),
    ],
)
def test_turns_become_the_chats_messages(claude, client, fields, said):
    chat = client.chat.completions.create(model="tiny", messages=said, max_tokens=1)
    assert tokens(claude, **fields) == chat.usage.prompt_tokens


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content[0]"),
        ({"messages": [*HI, {"role": "assistant", "content": ""}]}, "assistant"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_config": SCHEMA}, "output_config.format at /uniqueItems"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages[0].name"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1000}, "max_tokens"),
        ({"extra_body": {"temperature": -1.0}}, "temperature"),
        ({"extra_body": {"top_k": 0}}, "top_k"),
        ({"stop_sequences": [""]}, "stop"),
        ({"stop_sequences": ["x"] * 33}, "stop_sequences"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"tools": [{"type": "web_search_20250305", "name": "s"}]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice"),
        ({"container": "c"}, "container"),
        ({"extra_body": {"n": 2}}, "n"),
        ({"extra_headers": {"anthropic-version": "2023-01-01"}}, "anthropic-version"),
    ],
)
def test_fields_that_are_not_obeyed_are_refused_by_name(claude, fields, named):
    error = refusal(claude, **fields)
    assert error["type"] == "invalid_request_error" and named in error["message"]


def test_sampling_fields_reach_the_engine(claude, record):
    fields = {"temperature": 0.5, "top_p": 0.25, "top_k": 3, "seed": 9, "rid": "sampled"}
    ask(claude, extra_body=fields)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    (line,) = [line for line in lines if line["id"].startswith("sampled/")]
    assert [line[name] for name in ("temperature", "top_p", "top_k", "seed")] == [0.5, 0.25, 3, 9]


def test_what_asks_for_nothing_is_taken(claude):
    neutral = {"thinking": {"type": "disabled"}, "service_tier": "auto", "tools": []}
    assert ask(claude, cache_control={"type": "ephemeral"}, **neutral).content


def test_an_unknown_model_is_not_found(claude):
    assert refusal(claude, anthropic.NotFoundError, model="x")["type"] == "not_found_error"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.count_tokens(model="x", messages=HI)


def test_an_engine_error_has_anthropics_shape_before_and_behind_the_first_event(claude):
    asked = [{"role": "user", "content": "\x03"}]
    for stream in (True, False):
        error = refusal(claude, anthropic.InternalServerError, messages=asked, stream=stream)
        assert error["type"] == "api_error" and "scripted failure" in error["message"]
    events = ask(claude, [{"role": "user", "content": "\x07"}], stream=True, max_tokens=50)
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(events)
    assert caught.value.body["error"]["type"] == "timeout_error"
    error = refusal(
        claude, anthropic.InternalServerError, messages=[{"role": "user", "content": "\x06"}]
    )
    assert error["type"] == "overloaded_error"


def test_errors_of_every_layer_have_anthropics_shape(folder, http):
    wrong = http.get("/v1/messages")
    assert wrong.status_code == 405 and wrong.json()["type"] == "error"
    foreign = http.post("/v1/messages", json={}, headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403 and foreign.json()["error"]["type"] == "permission_error"
    text = http.post("/v1/messages", content="x", headers={"content-type": "text/plain"})
    assert text.json()["error"]["type"] == "invalid_request_error"
    assert "type" not in http.post("/v1/messagesx", json={}).json()


def test_a_key_is_taken_from_x_api_key_or_authorization(folder):
    with running(config_for(folder, api_key="k")) as server, server.http() as http:
        body = {"messages": HI, "max_tokens": 1}
        refused = http.post("/v1/messages", json=body)
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        for headers in ({"x-api-key": "k"}, bearer("k"), {"x-api-key": "x", **bearer("k")}):
            assert http.post("/v1/messages", json=body, headers=headers).status_code == 200
        for headers in ({"x-api-key": "x"}, {"x-api-key": "k", **bearer("x")}):
            assert http.post("/v1/messages", json=body, headers=headers).status_code == 401
        with anthropic.Anthropic(base_url=server.url, api_key="k") as claude:
            assert ask(claude).content[0].text


def test_a_call_that_is_aborted_says_so(slow):
    with anthropic.Anthropic(base_url=slow.url, api_key="none") as claude, slow.http() as http:
        with ask(claude, stream=True, max_tokens=200, extra_body={"rid": "mine"}) as stream:
            assert next(stream).message.id == "mine"
            assert http.post("/abort_request", json={"rid": "mine"}).json() == {"aborted": 1}
            *_, delta, _ = stream
        assert delta.delta.stop_reason == "abort"
    wait_until(lambda: not slow.service.live)
