"""How much one server, one call and one connection may take."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from starlette.requests import Request

from anychip.http.body import read_body
from anychip.http.errors import ApiError
from anychip.http.listening import STALLED_S, bind
from served import config_for, running, wait_until

COMPLETIONS = "/v1/completions"


def test_calls_over_the_limit_are_refused_and_probes_and_aborts_are_not(folder):
    options = {"step_s": "0.01"}
    config = config_for(folder, chip_option=options, max_concurrent_requests=2)
    with running(config) as server, server.http() as http:
        body = {"prompt": "a", "max_tokens": 250}
        answers = []

        def ask(name):
            with server.http() as other:
                answers.append(other.post(COMPLETIONS, json={**body, "rid": name}).status_code)

        threads = [threading.Thread(target=ask, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(server.service.live) == 2)
        for path in (COMPLETIONS, "/v1/chat/completions", "/generate", "/tokenize"):
            refused = http.post(path, content=b"not even read")
            assert refused.status_code == 503, path
            assert refused.json()["error"]["code"] == "too_many_calls"
            assert "--max-concurrent-requests" in refused.json()["error"]["message"]
            assert int(refused.headers["retry-after"]) >= 1
        for path in ("/health", "/ready", "/metrics", "/v1/models", "/server_info"):
            assert http.get(path).status_code == 200, path
        assert http.post("/abort_request", json={"rid": "a"}).status_code == 200
        threads[0].join(20)
        assert http.post("/tokenize", json={"prompt": "a"}).status_code == 200
        assert http.post("/abort_request", json={"abort_all": True}).status_code == 200
        threads[1].join(20)
        assert answers == [200, 200]


def test_refused_and_failed_calls_give_their_place_back(folder):
    config = config_for(folder, max_concurrent_requests=1)
    with running(config) as server, server.http() as http:
        for _ in range(3):
            assert http.post(COMPLETIONS, json={"prompt": []}).status_code == 400
            assert http.post(COMPLETIONS, json={"prompt": [3]}).status_code == 500
            body = {"prompt": "a", "max_tokens": 2, "stream": True}
            assert http.post(COMPLETIONS, json=body).text.endswith("[DONE]\n\n")


def test_the_tokens_of_one_call_are_a_flag(folder):
    config = config_for(folder, max_tokens_per_call=100)
    with running(config) as server, server.http() as http:
        fine = {"prompt": "a", "n": 10, "max_tokens": 10}
        assert http.post(COMPLETIONS, json=fine).status_code == 200
        calls = {
            COMPLETIONS: {"prompt": ["a", "b"], "n": 6, "max_tokens": 9},
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
            "/generate": {"text": "a"},
        }
        for path, body in calls.items():
            refused = http.post(path, json=body)
            assert refused.status_code == 400, path
            assert "at most 100 in one call (--max-tokens-per-call)" in refused.text


def body_of(*chunks, then_stands_still=False, **headers):
    """A request whose body comes in these chunks."""
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    waiting = list(chunks)

    async def receive():
        if waiting:
            more = then_stands_still or len(waiting) > 1
            return {"type": "http.request", "body": waiting.pop(0), "more_body": more}
        await asyncio.Event().wait()

    return Request({"type": "http", "method": "POST", "headers": told}, receive)


def test_a_body_that_stands_still_is_given_up():
    assert asyncio.run(read_body(body_of(b"a", b"b"), 100)) == b"ab"
    half = body_of(b"a", b"b", then_stands_still=True)
    with pytest.raises(ApiError, match=r"nothing more of the body arrived for 0.05 s") as caught:
        asyncio.run(read_body(half, 100, idle_s=0.05))
    assert caught.value.status == 408 and caught.value.body.code == "body_timeout"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a limit of Linux's kernel")
def test_accepted_connections_inherit_the_limit_of_a_stalled_reader():
    with bind("127.0.0.1", 0) as listening:
        listening.listen()
        listening.setblocking(True)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            got = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert got == 1000 * STALLED_S
