"""Wishes for structured output that are refused, by field and pointer, before any state exists."""

from __future__ import annotations

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


def schema(inner):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": inner}}


REFUSED = [
    ({"response_format": {"type": "xml"}}, "response_format.type", "'xml'"),
    ({"response_format": {}}, "response_format.type", "None"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "an object"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}},
        "response_format.json_schema.schema",
        "no schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}},
        "response_format",
        "'x'",
    ),
    ({"response_format": schema({"not": {"type": "string"}})}, "response_format", "/not"),
    (
        {"response_format": schema({"properties": {"a": {"contains": {}}}})},
        "response_format",
        "/properties/a/contains",
    ),
    ({"regex": "a", "ebnf": 'root ::= "a"'}, "ebnf", "regex and ebnf both"),
    ({"regex": "(a"}, "regex", "regex"),
    ({"regex": "(?=a)b"}, "regex", "regex"),
    ({"regex": "a\u0000b"}, "regex", "NUL"),
    ({"regex": 5}, "regex", "Expected"),
    ({"ebnf": "root ::= missing"}, "ebnf", "missing"),
    ({"choice": []}, "choice", "choice"),
    ({"guided_choice": ["a", 5]}, "guided_choice[1]", "Expected"),
    ({"guided_json": "{"}, "guided_json", "JSON"),
    ({"structured_outputs": {"yaml": "x"}}, "structured_outputs", "'yaml'"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "send one"),
    ({"structured_outputs": {"choice": [5]}}, "structured_outputs.choice", "list of texts"),
    ({"regex": "a+", "ignore_eos": True}, "ignore_eos", "could not end"),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("fields", "param", "text"), REFUSED)
def test_wishes_that_cannot_be_served(http, path, fields, param, text):
    body = {"messages": HI} if path == CHAT else {"prompt": "a"}
    answer = http.post(path, json={**body, **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param, error
    assert text in error["message"]


def test_wishes_for_nothing_are_none(http):
    for value in ({"type": "text"}, None):
        body = {"prompt": "a", "max_tokens": 1, "response_format": value}
        assert http.post(COMPLETIONS, json=body).status_code == 200
    empty = {"prompt": "a", "max_tokens": 1, "structured_outputs": {"regex": None}}
    assert http.post(COMPLETIONS, json=empty).status_code == 200


def test_the_native_endpoint_refuses_alike(http):
    for params, text in (({"regex": "(a"}, "regex"), ({"choice": ["a"], "ebnf": "x"}, "both")):
        answer = http.post("/generate", json={"text": "a", "sampling_params": params})
        assert answer.status_code == 400 and text in answer.json()["error"]["message"]
