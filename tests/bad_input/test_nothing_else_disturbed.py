"""A long answer runs while everything wrong is sent beside it: same text, no page lost."""

from __future__ import annotations

import json

import httpx
import pytest

from served import config_for, model_folder, running, wait_until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
JSON = {"content-type": "application/json"}
RAW = [
    b"",
    b"{",
    b'{"prompt": "a\x00b"}',
    b'{"prompt": "a", "temperature": NaN}',
    b'{"prompt": "a", "temperature": -Infinity}',
    b'{"prompt": "a", "temperature": 1e999}',
    b'{"prompt": "a", "top_p": 1e-999}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"a": ' * 100_000,
    b'\xef\xbb\xbf{"prompt": "a"}',
]
ASKED = [
    (COMPLETIONS, {"prompt": "a" * 5000}, 400),
    (COMPLETIONS, {"prompt": [260]}, 400),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 10**30}, 400),
    (COMPLETIONS, {"prompt": "a", "model": "another"}, 404),
    (COMPLETIONS, {"prompt": "a", "rid": "long"}, 400),
    (CHAT, {"messages": [{"role": "bad", "content": "x"}]}, 400),
    (CHAT, {"messages": [{"role": "user", "content": [[]]}]}, 400),
    ("/generate", {"text": "a", "sampling_params": []}, 400),
    ("/tokenize", {"prompt": 5}, 400),
    ("/tokenize", {}, 400),
    ("/detokenize", {"tokens": [260]}, 400),
    ("/detokenize", {"tokens": [-1]}, 400),
    ("/detokenize", {"tokens": [1, [2]]}, 400),
    ("/abort_request", {"rid": "lon"}, 404),
    ("/abort_request", {}, 400),
    ("/flush_cache", {}, 400),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = model_folder(tmp_path_factory.mktemp("model"))
    with running(config_for(folder, chip_option={"step_s": "0.03"})) as server:
        yield server


@pytest.fixture
def beside(server):
    """A client for wrong requests; the answer that ran meanwhile is then checked."""
    body = {"prompt": "a", "max_tokens": 100, "stream": True, "rid": "long", "temperature": 0}
    with server.http() as reading, server.http() as http:
        with reading.stream("POST", COMPLETIONS, json=body) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            yield http
            assert server.service.live, "the answer was over before the last wrong request"
            assert joined([first, *lines]) == ("bcdefghijklmnopqrstuvwxyza" * 4)[:100]
        pages_returned(server, http)


def joined(lines) -> str:
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(event["choices"][0]["text"] for event in events)


def pages_returned(server, http: httpx.Client) -> None:
    wait_until(lambda: not server.service.live)
    assert http.post("/flush_cache").status_code == 200
    client = server.service.client  # its figures are the last step's, or the last idle second's
    wait_until(lambda: client.stats.pages_free == client.stats.pages_total)
    assert client.stats.check_violations == 0 and client.deaths == 0


def test_bodies_that_are_no_request(beside):
    for body in RAW:
        for path in (COMPLETIONS, CHAT, "/generate", "/tokenize", "/abort_request"):
            answer = beside.post(path, content=body, headers=JSON)
            assert answer.status_code == 400, (path, body[:40], answer.text)
            assert answer.json()["error"]["message"]


def test_requests_that_cannot_be_served(beside):
    for path, body, status in ASKED:
        answer = beside.post(path, json=body)
        assert answer.status_code == status, (path, body, answer.text)
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_null_is_the_default_of_every_field(beside):
    names = ("max_tokens", "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "rid")
    body = {"prompt": "0", **dict.fromkeys(names), "max_tokens": 2}
    body |= {"stream": None, "stream_options": None, "model": None, "user": None}
    answer = beside.post(COMPLETIONS, json=body)
    assert answer.status_code == 200 and answer.json()["choices"][0]["text"] == "12"
