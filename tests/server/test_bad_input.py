from __future__ import annotations

import gzip

import pytest

from served import config_for, running

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
HI = [{"role": "user", "content": "hi"}]


def post(http, path, body):
    """The error of a request that must be refused with 400."""
    answer = http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


@pytest.fixture(autouse=True)
def nothing_else_is_disturbed(http):
    yield
    answer = http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 2})
    assert answer.json()["choices"][0]["text"] == "bc"


FIELDS = [
    ({"max_tokens": 0}, "max_tokens", "1 or more"),
    ({"max_tokens": -5}, "max_tokens", "1 or more"),
    ({"max_tokens": 10**18}, "max_tokens", "at most 253"),
    ({"max_tokens": 254}, "max_tokens", "at most 253"),
    ({"max_tokens": "9"}, "max_tokens", "Expected `int | null`, got `str`"),
    ({"max_tokens": 1.5}, "max_tokens", "got `float`"),
    ({"n": 0}, "n", "at least 1"),
    ({"n": -1}, "n", "at least 1"),
    ({"n": 10**9}, "n", "at most 128"),
    ({"n": True}, "n", "got `bool`"),
    ({"temperature": -0.1}, "temperature", "at least 0"),
    ({"top_p": 0}, "top_p", "over 0"),
    ({"top_p": 1.01}, "top_p", "at most 1"),
    ({"top_k": 0}, "top_k", "-1 for all"),
    ({"top_k": -2}, "top_k", "-1 for all"),
    ({"min_p": 2}, "min_p", "at most 1"),
    ({"seed": 2**63}, "seed", "64-bit"),
    ({"stop": ["x"] * 33}, "stop", "at most 32"),
    ({"stop": ""}, "stop", "1 to 4096"),
    ({"stop_token_ids": [260]}, "stop_token_ids", "0 to 259"),
    ({"stop_token_ids": [1] * 257}, "stop_token_ids", "at most 256"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
    ({"stream": True, "stream_options": {"usage": 1}}, "stream_options.usage", "usage"),
    ({"rid": "a\nb"}, "rid", "printable"),
    ({"rid": ""}, "rid", "1 to 256"),
    ({"temprature": 1}, "temprature", "unknown field 'temprature'; the nearest is 'temperature'"),
    ({"xyzzy": 1}, "xyzzy", "unknown field 'xyzzy'; known are "),
    ({"frequency_penalty": 2.5}, "frequency_penalty", "at most 2"),
    ({"presence_penalty": -3}, "presence_penalty", "at least -2"),
    ({"repetition_penalty": 0}, "repetition_penalty", "at least 0.01"),
    ({"repetition_penalty": 1e-320}, "repetition_penalty", "at least 0.01"),
    ({"logit_bias": {"260": 1}}, "logit_bias", "0 to 259"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "token ids"),
    ({"logit_bias": {"the": 1}}, "logit_bias", "token ids"),
    ({"logit_bias": {"5": 101}}, "logit_bias", "at most 100"),
    ({"logit_bias": {str(n): 1 for n in range(4097)}}, "logit_bias", "at most 4096"),
    ({"logit_bias": {f"x{n}": 1 for n in range(4097)}}, "logit_bias", "at most 4096"),
    ({"allowed_token_ids": []}, "allowed_token_ids", "empty"),
    ({"allowed_token_ids": [5, 260]}, "allowed_token_ids", "0 to 259"),
    ({"bad_words": [""]}, "bad_words", "1 to 256"),
    ({"bad_words": ["x"] * 129}, "bad_words", "at most 128"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens", "at most max_tokens, which is 4"),
    ({"min_tokens": -1}, "min_tokens", "at least 0"),
    ({"min_p": True}, "min_p", "got `bool`"),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("fields", "param", "text"), FIELDS)
def test_fields_outside_their_limits(http, path, fields, param, text):
    base = {"prompt": "abc"} if path == COMPLETIONS else {"messages": HI}
    if path == CHAT and "253" in text:
        text = "at most 236"
    error = post(http, path, {**base, **fields})
    assert text in error["message"] and error["param"] == param


@pytest.mark.parametrize(("path", "param"), [(CHAT, "messages"), (COMPLETIONS, "prompt")])
def test_a_field_that_is_missing_is_named(http, path, param):
    assert post(http, path, {"max_tokens": 1})["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"suffix": "x"}, "suffix"),
        ({"messages": HI}, "messages"),
    ],
)
def test_completion_fields_that_are_refused(http, fields, param):
    assert post(http, COMPLETIONS, {"prompt": "abc", **fields})["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "messages"),
    ],
)
def test_chat_fields_that_are_refused(http, fields, param):
    assert post(http, CHAT, {"messages": HI, **fields})["param"] == param


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("", "empty"),
        ([], "empty"),
        ([""], "empty"),
        ([[]], "empty"),
        ([97, 260], "prompt[1] is 260"),
        ([-1], "prompt[0] is -1"),
        ([10**30], "prompt[0] is 10000"),
        (["a", 5], "mixes"),
        (["a", [5]], "mixes"),
        ([[1], ["a"]], "Expected `int`, got `str`"),
        (7, "Expected"),
        (None, "Expected"),
        ("a" * 256, "the prompt has 256 tokens; the context of 256 tokens takes at most 255"),
        (["a"] * 2049, "at most 2048"),
    ],
)
def test_prompts_that_cannot_run(http, prompt, text):
    assert text in post(http, COMPLETIONS, {"prompt": prompt, "max_tokens": 1})["message"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "at least one message"),
        ("hi", "messages"),
        ([5], "messages[0]"),
        ([{"content": "x"}], "role"),
        ([{"role": "user", "content": 5}], "content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url'"),
        ([{"role": "bad", "content": "x"}], "no role bad"),
    ],
)
def test_messages_that_make_no_prompt(http, messages, text):
    assert text in post(http, CHAT, {"messages": messages})["message"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "one of text and input_ids"),
        ({"text": "a", "input_ids": [1]}, "one of text and input_ids"),
        ({"text": "a", "sampling_params": {"n": 0}}, "n is 0"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 999}}, "max_new_tokens is 999"),
        ({"text": "a", "sampling_params": {"custom_params": {}}}, "custom_params is not supported"),
        ({"text": "a", "sampling_params": {"max_tokens": 3}}, "unknown field 'max_tokens'"),
        ({"text": "a", "top_logprobs_num": 2}, "need return_logprob: true"),
        ({"text": "a", "logprob_start_len": 0}, "need return_logprob: true"),
        ({"text": "a", "token_ids_logprob": [5]}, "token_ids_logprob is not supported yet"),
        ({"text": "a", "sampling_params": {"min_new_tokens": 129}}, "min_new_tokens is 129"),
        ({"input_ids": [300]}, "input_ids[0] is 300"),
        ({"input_ids": []}, "empty"),
        ({"text": "a", "rid": ["x"]}, "rid: Expected"),
        ({"text": "a", "rid": ""}, "rid must be 1 to 256"),
    ],
)
def test_generate_refuses_by_name(http, body, text):
    assert text in post(http, GENERATE, body)["message"]


def test_absurd_volumes_are_refused_together(http):
    body = {"prompt": ["a"] * 2000, "n": 2, "max_tokens": 1}
    assert "4000 sequences" in post(http, COMPLETIONS, body)["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"null", b"\xff", b'{"a": NaN}', b"[" * 200_000, b'{"a":1}x']
)
def test_what_is_no_json_object(http, body):
    answer = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", [rb"\ud83d", rb"a\udc00b"])
def test_lone_surrogates(http, text):
    body = b'{"prompt": "' + text + b'"}'
    answer = http.post(COMPLETIONS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "surrogate" in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type(http, kind):
    answer = http.post(CHAT, content=b'{"messages": []}', headers={"content-type": kind})
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_named(http, mark):
    body = '{"prompt": "a"}'.encode(mark)
    answer = http.post(COMPLETIONS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "byte order mark: send UTF-8 without one" in answer.json()["error"]["message"]


def test_a_packed_body_is_named(http):
    headers = {"content-type": "application/json", "content-encoding": "GZIP"}
    answer = http.post(COMPLETIONS, content=gzip.compress(b"{}"), headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_content_encoding"
    assert "content encoding is 'gzip'; send the JSON as it is" in answer.text
    headers["content-encoding"] = "identity"
    answer = http.post(COMPLETIONS, content=b'{"prompt": "a", "max_tokens": 2}', headers=headers)
    assert answer.status_code == 200


def test_unknown_routes_and_wrong_methods(http):
    answer = http.get("/v1/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == (
        "there is no GET /v1/nothing; GET /openapi.json lists what there is"
    )
    answer = http.post("/v1/chat/completion", json={})
    assert f"the nearest is {CHAT}" in answer.json()["error"]["message"]
    answer = http.get(CHAT)
    assert answer.json()["error"]["message"] == f"GET {CHAT}: this path takes POST"
    assert answer.status_code == 405 and answer.headers["allow"] == "POST"
    assert answer.json()["error"]["code"] == "method_not_allowed"


def test_a_body_over_the_limit(folder):
    with running(config_for(folder, max_request_bytes=1024)) as server, server.http() as http:
        big = {"prompt": "a" * 2000}
        answer = http.post(COMPLETIONS, json=big)
        assert answer.status_code == 413
        assert "1,024 bytes" in answer.json()["error"]["message"]
        chunks = (b'{"prompt": "' if i == 0 else b"a" * 100 for i in range(50))
        headers = {"content-type": "application/json"}
        answer = http.post(COMPLETIONS, content=chunks, headers=headers)
        assert answer.status_code == 413


def test_the_cache_bounds_what_is_asked(folder):
    options = {"pages": "10"}
    with running(config_for(folder, chip_option=options)) as server, server.http() as http:
        error = post(http, COMPLETIONS, {"prompt": "a" * 40, "max_tokens": 1})
        assert "the KV cache of 40 tokens takes at most 39" in error["message"]
        error = post(http, COMPLETIONS, {"prompt": "a" * 20, "max_tokens": 21})
        assert "ask for at most 20" in error["message"]
