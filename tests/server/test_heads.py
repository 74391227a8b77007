"""The head of a call: how long it may be, and how long it may take."""

from __future__ import annotations

import json
import resource
import socket
from urllib.parse import urlsplit

import pytest

from anychip.http.http_protocol import MAX_HEAD_BYTES, HttpProtocol
from served import config_for, running

PIECE = 1 << 16
MOST = 512 * PIECE
"""What is sent at most: 32 MiB, so that keeping it would be seen."""
CALL = b'{"prompt": "a", "max_tokens": 2}'
LINE, HOST, JSON = b"POST /v1/completions HTTP/1.1\r\n", b"Host: localhost\r\n", b"application/json"
ENDLESS = {
    "path": b"GET /" + b"a" * 10,
    "header": LINE + HOST + b"X-Long: ",
    "name": LINE + HOST,
    "extension of a chunk": LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n5;a=",
    "trailer": LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ",
}


def connected(server) -> socket.socket:
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    connection.settimeout(30)
    return connection


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other end closes, which it may do without having read everything."""
    got = b""
    try:
        while piece := connection.recv(PIECE):
            got += piece
    except ConnectionError:
        pass
    return got


@pytest.mark.parametrize("begin", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_not_kept(server, begin):
    with connected(server) as connection:
        connection.sendall(begin)
        sent, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ConnectionError):
            while sent < MOST:
                connection.sendall(b"a" * PIECE)
                sent += PIECE
        assert sent < MOST
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_many_short_headers_are_too_many_as_well(server):
    with connected(server) as connection, pytest.raises(ConnectionError):
        connection.sendall(LINE + HOST)
        for number in range(MOST // 20):
            connection.sendall(b"X-%08d: 12345678\r\n" % number * 100)


def test_a_head_that_is_too_long_is_told(server):
    with connected(server) as connection:
        connection.sendall(LINE + HOST)
        connection.sendall(b"X-Long: " + b"a" * MAX_HEAD_BYTES)
        head, _, body = all_of(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ") and b"connection: close" in head
    error = json.loads(body)["error"]
    assert error["code"] == "bad_head" and "longer than 65,536 bytes" in error["message"]


def test_a_long_body_in_small_chunks_is_none(server):
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in CALL[:-1] + b" " * 200_000 + CALL[-1:])
    told = b"Content-Type: " + JSON + b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(LINE + HOST + told + chunks + b"0\r\n\r\n")
        assert all_of(connection).startswith(b"HTTP/1.1 200 ")


@pytest.fixture(scope="module")
def hasty(folder):
    """A server that waits for a head for half a second; a step takes 5 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpProtocol, "head_s", 0.5)
        with running(config_for(folder, chip_option={"step_s": "0.005"})) as server:
            yield server


def test_a_connection_on_which_nothing_is_asked_is_closed(hasty):
    with connected(hasty) as connection:
        assert all_of(connection) == b""


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_head_that_comes_too_slowly_is_given_up(hasty, before):
    with connected(hasty) as connection:
        connection.sendall(before)
        if before:
            assert connection.recv(PIECE).startswith(b"HTTP/1.1 200 ")
        connection.sendall(LINE + HOST)
        got = all_of(connection)
    assert got.startswith(b"HTTP/1.1 408 ") and b"not complete within 0.5 s" in got


def test_an_answer_may_take_longer_than_a_head(hasty):
    body = {"prompt": "a", "max_tokens": 200}
    with hasty.http() as http:
        assert http.post("/v1/completions", json=body).status_code == 200
        assert http.post("/v1/completions", json=body).status_code == 200
