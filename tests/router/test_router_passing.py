"""Calls through a router: who answers, what is tried again, and what clients are told."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
from routed import ScriptedWorker, closed_port, completion, events_of, routing, scripted

from anychip.http.event_edge import EventEdge, id_in
from anychip.router.passing import _cut, _Try
from served import wait_until

COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def pair():
    with scripted("one", "two") as workers:
        yield workers


@pytest.fixture(scope="module")
def router(pair):
    with routing(pair, breaker_failures=1000) as router:
        yield router


@pytest.fixture
def http(router):
    with router.http() as http:
        yield http


@contextmanager
def streaming(router, prompt):
    """A stream that has begun: its events' iterator, and who answers."""
    with (
        router.http() as http,
        http.stream("POST", COMPLETIONS, json=completion(prompt, stream=True)) as answer,
    ):
        lines = (line for line in answer.iter_lines() if line)
        next(lines)
        yield lines, answer.headers["x-anychip-worker"]


def in_flight(router) -> int:
    return sum(router.state(name)["calls"] for name in ("one", "two"))


def test_a_call_goes_to_a_worker_and_its_answer_comes_back_unchanged(http, pair):
    answer = http.post(COMPLETIONS, json=completion(), headers={"x-request-id": "mine"})
    name = answer.headers["x-anychip-worker"]
    assert answer.json() == {"id": f"cmpl-{name}", "choices": [{"text": "abc"}]}
    assert answer.headers.get_list("x-request-id") == ["mine"]
    worker = next(one for one in pair if one.name == name)
    method, path, headers, body = worker.calls[-1]
    assert (method, path, body) == ("POST", COMPLETIONS, completion())
    assert headers["x-request-id"] == "mine" and headers["host"] == worker.url[7:]


def test_equal_workers_take_turns_and_the_book_is_even_at_the_end(http, router):
    names = {http.post(COMPLETIONS, json=completion()).headers["x-anychip-worker"] for _ in "ab"}
    assert names == {"one", "two"}
    wait_until(lambda: in_flight(router) == 0)
    router.check_book()


def test_a_stream_comes_piece_by_piece(router, pair):
    with streaming(router, "hold") as (lines, name):
        assert f'"text":"{name}"' in next(lines)  # the worker holds back the third
        assert router.state(name)["calls"] == 1
        next(one for one in pair if one.name == name).gate.set()
        assert list(lines)[-1] == "data: [DONE]"
    for one in pair:
        one.gate.clear()
    wait_until(lambda: in_flight(router) == 0)


def test_a_worker_that_dies_in_mid_stream_ends_that_stream_alone_and_says_so(router, pair):
    with streaming(router, "hold") as (other, name):
        found = {}

        def die() -> None:
            with router.http() as http:
                found["died"] = http.post(COMPLETIONS, json=completion("die", stream=True))

        asking = threading.Thread(target=die)
        asking.start()
        asking.join(60)
        events = events_of(found["died"].text)
        assert len(events) == 3, "two whole events and the error; nothing of the torn one"
        dead = found["died"].headers["x-anychip-worker"]
        assert f"'{dead}' broke off" in events[-1]["error"]["message"]
        assert events[-1]["error"]["code"] == "worker_lost"
        next(one for one in pair if one.name == name).gate.set()
        assert list(other)[-1] == "data: [DONE]", "nobody else is disturbed"
    for one in pair:
        one.gate.clear()
    wait_until(lambda: in_flight(router) == 0)
    router.check_book()


def test_a_client_that_leaves_ends_the_call_at_the_worker(router, pair):
    with streaming(router, "hold") as (_, name):
        worker = next(one for one in pair if one.name == name)
        before = worker.left
    wait_until(lambda: worker.left == before + 1)
    wait_until(lambda: in_flight(router) == 0)
    router.check_book()


def test_a_client_that_leaves_while_it_waits_ends_the_call_too(router, pair):
    before = sum(one.left for one in pair)
    with router.http() as http, pytest.raises(httpx.ReadTimeout):
        http.post(COMPLETIONS, json=completion("hang"), timeout=0.2)
    wait_until(lambda: sum(one.left for one in pair) == before + 1)
    wait_until(lambda: in_flight(router) == 0)


def test_a_slow_client_holds_its_worker_back_and_nobody_else(router, pair):
    with streaming(router, "big") as (_, name):
        worker = next(one for one in pair if one.name == name)
        seen = []

        def stands_still() -> bool:
            seen.append(worker.sent)
            threading.Event().wait(0.05)
            return len(seen) > 10 and len(set(seen[-10:])) == 1

        wait_until(stands_still)
        assert 0 < worker.sent < worker.BIG / 4, "the rest is not piled up"
        with router.http() as http:
            assert http.post(COMPLETIONS, json=completion()).status_code == 200
    wait_until(lambda: in_flight(router) == 0)


def test_a_failure_is_passed_on_and_not_tried_again(http, pair):
    before = sum(len(one.calls) for one in pair)
    answer = http.post(COMPLETIONS, json=completion("500"))
    assert (answer.status_code, answer.json()) == (500, {"error": {"message": "broken"}})
    assert sum(len(one.calls) for one in pair) == before + 1


def test_a_full_worker_leads_to_another_and_when_all_are_full_the_last_answer_counts(http, pair):
    pair[0].busy = True
    try:
        names = [
            http.post(COMPLETIONS, json=completion()).headers["x-anychip-worker"] for _ in "ab"
        ]
        assert names == ["two", "two"]
        pair[1].busy = True
        answer = http.post(COMPLETIONS, json=completion())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert answer.json()["error"]["code"] == "queue_full"
    finally:
        pair[0].busy = pair[1].busy = False


def test_a_model_that_nobody_has_is_refused_with_those_that_there_are(http):
    answer = http.post(COMPLETIONS, json={**completion(), "model": "n"})
    assert answer.status_code == 404 and "the workers have 'm'" in answer.json()["error"]["message"]
    assert http.get("/v1/models/n").status_code == 404
    assert [one["id"] for one in http.get("/v1/models").json()["data"]] == ["m"]
    assert http.get("/v1/models/m").json()["workers"] == ["one", "two"]
    error = http.post("/v1/embeddings", json={}).json()["error"]
    assert error["code"] == "unknown_url"
    assert "/v1/embeddings; GET /openapi.json lists what there is" in error["message"]


def test_a_websocket_is_refused_and_reaches_no_worker(caplog):
    with scripted("one") as (one,), routing([one]) as router, router.http() as http:
        told = http.get(COMPLETIONS, headers={"connection": "Upgrade", "upgrade": "websocket"})
        assert (told.status_code, told.json()["error"]["code"]) == (501, "no_websockets")
        assert one.calls == [] and "install" not in caplog.text


def test_a_worker_that_cannot_be_reached_leads_to_another_and_both_tries_are_counted(pair):
    gone = ScriptedWorker("gone").start()
    with routing([gone, pair[0]], health_check_interval_s=60, breaker_failures=3) as router:
        gone.stop()
        with router.http() as http:
            names = [
                http.post(COMPLETIONS, json=completion()).headers["x-anychip-worker"]
                for _ in range(8)
            ]
            assert set(names) == {"one"}
            page = http.get("/metrics").text
        assert router.state("gone")["state"] == "sick"
        assert "3 calls failed" in router.state("gone")["reason"]
        assert 'anychip_router_retries_total{reason="connect"} 3.0' in page
        assert 'anychip_router_breaker_openings_total{chip="unknown",worker="gone"} 1.0' in page
        router.check_book()


def test_a_call_is_not_repeated_where_it_may_have_begun(pair):
    """What came is no HTTP: the worker may be computing all the same."""
    rubbish = socket.create_server(("127.0.0.1", 0))
    served = []

    def answer() -> None:
        while True:
            try:
                peer, _ = rubbish.accept()
            except OSError:
                return
            with peer:
                asked = peer.recv(65536)
                if asked.startswith(b"POST"):
                    served.append(asked)
                    peer.sendall(b"what?\r\n\r\n")
                    continue
                body = b'{"data":[{"id":"m"}]}' if b"/v1/models" in asked else b"{}"
                head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                peer.sendall(head % len(body) + body)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()

    class Odd:
        name, url = "odd", f"http://127.0.0.1:{rubbish.getsockname()[1]}"

    try:
        with routing([Odd, pair[0]]) as router, router.http() as http:
            answers = [http.post(COMPLETIONS, json=completion()) for _ in "ab"]  # they take turns
    finally:
        rubbish.shutdown(socket.SHUT_RDWR)
        rubbish.close()
    told, well = sorted(answers, key=lambda one: -one.status_code)
    assert (told.status_code, well.status_code) == (502, 200) and len(served) == 1
    assert told.json()["error"]["code"] == "worker_lost"
    assert "'odd'" in told.json()["error"]["message"]


def test_a_worker_that_never_answers_is_given_up(pair):
    with routing(pair[:1], worker_timeout_s=0.3) as router, router.http() as http:
        told = http.post(COMPLETIONS, json=completion("hang"))
        assert told.status_code == 504 and "'one' did not answer" in told.json()["error"]["message"]
        router.check_book()


def test_nobody_there_is_told_with_the_reasons(caplog):
    caplog.set_level("INFO")

    class Nobody:
        name, url = "nobody", f"http://127.0.0.1:{closed_port()}"

    with routing([Nobody], wait=False) as router, router.http() as http:
        wait_until(lambda: "nothing listens there" in router.state("nobody")["reason"])
        assert "worker nobody: not ready yet: http://127.0.0.1:" in caplog.text
        assert http.get("/health").status_code == 200
        for answer in (http.get("/ready"), http.post(COMPLETIONS, json=completion())):
            assert answer.status_code == 503 and "Retry-After" in answer.headers
            assert "nobody is starting" in answer.json()["error"]["message"]


def test_events_go_out_whole_and_a_broken_stream_ends_in_its_dialect():
    edge = EventEdge()
    assert edge.feed(b'data: {"sequence_number":4}\n\nda') == b'data: {"sequence_number":4}\n\n'
    assert edge.feed(b"ta: 1") == b"" and edge.rest() == b"data: 1"
    error = _cut(_Try("w"))
    assert b'"sequence_number":5' in edge.failed("/v1/responses", error)
    assert edge.failed("/v1/messages", error).startswith(b"event: error\ndata: {")
    assert edge.failed("/v1/completions", error).startswith(b'data: {"error":')
    assert EventEdge().feed(b"\n\nabc") == b"\n\n"
    assert EventEdge().feed(b"data: 1\r\n\r\nx") == b"data: 1\r\n\r\n"
    long = EventEdge()
    assert len(long.feed(b"x" * (2 << 20))) == 2 << 20, "what never ends is not held for ever"
    assert long.failed("/generate", error).startswith(b"\n\n"), "it ends the torn event"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"id":"a"}', "a"),
        (b'event: x\ndata: {"response":{"id":"b"}}\n\n', "b"),
        (b'data: {"message":{"id":"c"}}\n\n', "c"),
        (b'{"meta_info":{"id":"d"}}', "d"),
        (b"data: [DONE]\n\n", None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_the_id_of_an_answer_is_found(data, found):
    assert id_in(data) == found
