from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from served import config_for, running, wait_until

STEP_S = 0.1
HI = [{"role": "user", "content": "hi"}]
BODIES = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "a", "max_tokens": 200},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 200},
    "/generate": {"text": "a", "sampling_params": {"max_new_tokens": 200}},
}


@pytest.fixture(scope="module")
def steady(folder):
    """A server with one slot whose steps take STEP_S seconds."""
    options = {"step_s": str(STEP_S)}
    with running(config_for(folder, chip_option=options, max_running_requests=1)) as server:
        yield server


def open_call(server, path, times=1, **body):
    """A POST on a raw connection, so that leaving is closing a socket and nothing else.

    times: how often it is sent, without waiting for an answer.
    """
    address = urlsplit(server.url)
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection = socket.create_connection((address.hostname, address.port))
    connection.sendall((head.encode() + data) * times)
    return connection


def stats(server):
    return server.service.client.stats


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", BODIES)
def test_a_client_that_leaves_is_aborted_within_two_steps(steady, path, stream):
    aborted = stats(steady).aborted
    connection = open_call(steady, path, stream=stream, **BODIES[path])
    wait_until(lambda: stats(steady).running == 1)
    if stream:
        assert b"200 OK" in connection.recv(4096)
    at_close = stats(steady).steps
    connection.close()
    wait_until(lambda: stats(steady).running == 0)
    assert stats(steady).aborted == aborted + 1
    # one step under way, one in the time that the news takes to the engine, one to report it
    assert stats(steady).steps <= at_close + 3
    assert stats(steady).pages_held == 0
    wait_until(lambda: not steady.service.live)


def test_a_client_that_leaves_the_queue_costs_nothing(steady):
    first = open_call(steady, "/v1/completions", prompt="a", max_tokens=100)
    wait_until(lambda: stats(steady).running == 1)
    second = open_call(steady, "/v1/completions", prompt="b", max_tokens=100, stream=True)
    wait_until(lambda: stats(steady).queued == 1)
    second.close()
    wait_until(lambda: stats(steady).queued == 0)
    assert stats(steady).running == 1
    first.close()
    wait_until(lambda: stats(steady).running == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_calls_sent_behind_each_other_end_with_their_client(steady, stream, caplog):
    calls = steady.service.metrics.http.requests
    aborted, begun = stats(steady).aborted, calls["/v1/completions", "POST"]
    connection = open_call(steady, "/v1/completions", 3, prompt="a", max_tokens=200, stream=stream)
    wait_until(lambda: stats(steady).running == 1)
    connection.close()
    wait_until(lambda: stats(steady).running == 0 and not steady.service.live)
    assert stats(steady).aborted == aborted + 1, "the first alone, the others have not begun"
    assert calls["/v1/completions", "POST"] == begun + 1
    assert not [r for r in caplog.records if r.name.startswith("uvicorn")], caplog.text


def test_all_n_choices_of_a_client_that_left_end(slow):
    connection = open_call(slow, "/v1/completions", prompt="a", n=4, max_tokens=200, stream=True)
    wait_until(lambda: stats(slow).running == 4)
    connection.close()
    wait_until(lambda: stats(slow).running == 0)
    assert stats(slow).pages_held == 0


def test_a_reader_that_stops_reading_is_dropped(folder):
    config = config_for(folder, context_length=2**17, chip_option={"pages": "70000"})
    with running(config) as server:
        body = {"prompt": "a", "max_tokens": 100_000, "stream": True}
        connection = open_call(server, "/v1/completions", **body)
        wait_until(lambda: stats(server).running == 1)
        wait_until(lambda: stats(server).running == 0)
        assert 8192 < stats(server).generated_tokens < 100_000
        connection.close()
        wait_until(lambda: not server.service.live)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a limit of Linux's kernel")
def test_a_reader_that_stays_and_never_reads_is_cut_off(folder):
    config = config_for(folder, context_length=2**17, chip_option={"pages": "70000"})
    with running(config) as server:
        server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 500)  # for this one
        body = {"prompt": "a", "max_tokens": 60_000, "stream": True}
        with open_call(server, "/v1/completions", **body):
            wait_until(lambda: server.service.live)
            wait_until(lambda: not server.service.live)  # and the connection is still open here
        wait_until(lambda: stats(server).running == 0 and stats(server).pages_held == 0)


def test_a_client_that_leaves_in_mid_prefill_gets_its_pages_freed(folder):
    config = config_for(
        folder, context_length=8192, chip_option={"pages": "4096", "step_s": str(STEP_S)}
    )
    with running(config) as server:
        connection = open_call(server, "/v1/completions", prompt="a" * 8000, max_tokens=10)
        wait_until(lambda: stats(server).steps >= 2)  # of the sixteen that the prompt needs
        at_close = stats(server).steps
        connection.close()
        wait_until(lambda: stats(server).running == 0 and stats(server).aborted == 1)
        assert stats(server).steps <= at_close + 3
        assert stats(server).generated_tokens == 0 and stats(server).pages_held == 0
        wait_until(lambda: not server.service.live)


def test_an_id_is_free_again_after_its_client_left_the_queue(steady):
    first = open_call(steady, "/v1/completions", prompt="a", max_tokens=100)
    wait_until(lambda: stats(steady).running == 1)
    second = open_call(steady, "/v1/completions", prompt="b", max_tokens=2, rid="again")
    wait_until(lambda: stats(steady).queued == 1)
    second.close()
    wait_until(lambda: (None, "again") not in steady.service.live)
    first.close()
    with steady.http() as http:
        body = {"prompt": "b", "max_tokens": 2, "rid": "again"}
        assert http.post("/v1/completions", json=body).json()["choices"][0]["text"] == "cd"
