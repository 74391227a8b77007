"""The client against a plain server that is not ours."""

from __future__ import annotations

import asyncio
import socket

import pytest
from scripted_server import plain_server

from anychip.bench.load.calls import Call, LoadError
from anychip.bench.load.client import LoadClient, base_url
from anychip.bench.load.events import refusal
from anychip.bench.load.loops import closed_loop, open_loop
from anychip.config import ConfigError

CALL = Call(id="one", prompt=(5, 6, 7, 8), max_tokens=3, params={"temperature": 0})
CHAT = Call(id="chat", messages=({"role": "user", "content": "hello"},), max_tokens=2)


@pytest.fixture(scope="module")
def server():
    with plain_server() as running:
        yield running


def sent(url: str, model: str, *calls: Call, **options):
    async def load():
        async with LoadClient(url, model, **options) as client:
            return [await client.send(call, client.clock(), 0.0) for call in calls]

    return asyncio.run(load())


def test_completions_and_chats_are_asked_for_and_read(server):
    one, chat = sent(server.url + "/v1", "sound", CALL, CHAT, key="secret")
    (path, body, headers), (chat_path, chat_body, _) = server.seen[-2:]
    assert (path, chat_path) == ("/v1/completions", "/v1/chat/completions")
    assert body == {
        "model": "sound",
        "prompt": [5, 6, 7, 8],
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert chat_body["messages"] == [{"role": "user", "content": "hello"}]
    assert headers["Authorization"] == "Bearer secret"
    assert one.failure is None and one.finish == "length" and one.text == "aaa"
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens) == (4, 2, 3)
    assert one.counted and len(one.gaps) == 2 and chat.text == "aa"
    assert 0 <= one.sent_s <= one.first_s <= one.last_s <= one.end_s


def test_pieces_are_counted_where_the_server_tells_no_usage(server):
    (one,) = sent(server.url, "no usage", CALL)
    assert one.failure is None and one.output_tokens == 3
    assert not one.counted and one.prompt_tokens is None


@pytest.mark.parametrize(
    ("model", "kind", "status", "text"),
    [
        ("busy", "busy", 503, "it busy"),
        ("refuses", "refused", 400, "it refuses"),
        ("fails", "server", 500, "it fails"),
        ("cuts", "cut", None, "before its end"),
        ("error event", "error event", None, "out of memory"),
        ("nonsense", "no stream", None, "not json"),
        ("whole", "no stream", None, "application/json"),
        ("hangs up", "connect", None, ""),
    ],
)
def test_each_way_to_fail_has_a_name(server, model, kind, status, text):
    (one,) = sent(server.url, model, CALL)
    assert one.failure.kind == kind and one.failure.status == status
    assert text in one.failure.text


def test_nobody_there_is_a_failed_answer_and_no_crash():
    (one,) = sent("http://127.0.0.1:1", "sound", CALL)
    assert one.failure.kind == "connect" and one.output_tokens == 0


def test_a_server_that_falls_silent_is_given_up(server):
    server.gate.clear()
    try:
        (one,) = sent(server.url, "sound", CALL, silent_s=0.2)
    finally:
        server.gate.set()
    assert one.failure.kind == "timeout" and one.finish is None


def test_a_server_that_never_tells_of_itself_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def ask():
            async with LoadClient(url, "sound", ask_s=0.2) as client:
                await client.get("/models")

        with pytest.raises(LoadError, match=r"/v1/models: no answer within 0\.2 s"):
            asyncio.run(ask())


def test_an_open_loop_has_all_calls_under_way_at_once(server):
    """No answer ends before the last call has come, so nothing in the client held one back."""
    calls = [Call(id=str(n), prompt=(1,), max_tokens=2) for n in range(120)]
    before = len(server.seen)

    async def load():
        async with LoadClient(server.url, "sound") as client:
            running = asyncio.ensure_future(open_loop(calls, client))
            while len(server.seen) < before + len(calls):
                await asyncio.sleep(0.01)
            server.gate.set()
            return await running

    server.gate.clear()
    run = asyncio.run(asyncio.wait_for(load(), 60))
    assert all(answer.failure is None for answer in run.answers)
    assert {answer.id for answer in run.answers} == {call.id for call in calls}


def test_a_closed_loop_runs_against_a_real_server(server):
    async def load():
        async with LoadClient(server.url, "sound") as client:
            return await closed_loop([CALL] * 6, client, concurrency=2)

    run = asyncio.run(load())
    assert [answer.output_tokens for answer in run.answers] == [3] * 6


def test_other_endpoints_can_be_asked(server):
    async def asked(path, **options):
        async with LoadClient(server.url, "sound") as client:
            return await client.get(path, **options)

    assert b'"sound"' in asyncio.run(asked("/models"))
    with pytest.raises(LoadError, match=r"/server_info: HTTP 404: no /server_info here"):
        asyncio.run(asked("/server_info", beside=True))


def test_an_address_is_taken_with_and_without_v1():
    assert base_url("http://h:1") == base_url("http://h:1/v1/") == "http://h:1/v1"
    assert base_url("https://h/proxy") == "https://h/proxy/v1"
    with pytest.raises(ConfigError, match="'h:1' is no address"):
        base_url("h:1")


def test_a_dead_engine_is_no_full_queue():
    body = b'{"error": {"message": "the engine is restarting", "code": "%s"}}'
    kinds = [refusal(503, body % code).kind for code in (b"engine_unavailable", b"queue_full")]
    assert kinds == ["server", "busy"]
