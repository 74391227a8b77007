"""Calls that ask for another protocol than HTTP/1.1."""

from __future__ import annotations

import pytest

from anychip.http.upgrade import refused_upgrade

WEBSOCKET = {
    "connection": "keep-alive, Upgrade",
    "upgrade": "WebSocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
ASKED = {"prompt": "one two", "max_tokens": 2, "temperature": 0}


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/chat/completions", "/"])
def test_a_websocket_is_refused_in_words_and_the_log_advises_nothing(http, path, caplog):
    told = http.get(path, headers=WEBSOCKET)
    error = told.json()["error"]
    assert (told.status_code, error["code"]) == (501, "no_websockets")
    assert "server-sent events" in error["message"] and "/v1/chat/completions" in error["message"]
    assert http.get("/health").status_code == 200
    assert not [r for r in caplog.records if r.name.startswith("uvicorn")], caplog.text


def test_what_another_protocol_is_offered_for_is_answered_in_this_one(http, caplog):
    offered = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMA"}
    for _ in range(2):
        told = http.get("/v1/models", headers=offered)
        assert (told.status_code, told.json()) == (200, http.get("/v1/models").json())
        assert told.headers["connection"] == "close", "another call on it would not be answered"
    told = http.post("/v1/completions", json=ASKED, headers=offered)
    assert (told.status_code, told.json()["error"]["code"]) == (501, "no_upgrade")
    assert "'h2c'" in told.json()["error"]["message"], "its body is not read"
    assert not [r for r in caplog.records if r.name.startswith("uvicorn")], caplog.text


def test_a_body_that_the_parser_drops_is_refused_with_the_way_out():
    """Java's HttpClient sends such a head, and its parser takes the body for HTTP/2."""
    wish = [(b"connection", b"Upgrade, HTTP2-Settings"), (b"upgrade", b"h2c")]
    for body in ((b"content-length", b"2"), (b"transfer-encoding", b"chunked")):
        error = refused_upgrade([*wish, body])
        assert error is not None and error.status == 501
        assert "'h2c'" in error.body.message and "send it as HTTP/1.1" in error.body.message
    assert refused_upgrade(wish) is None, "nothing is lost"
    assert refused_upgrade([wish[1], (b"content-length", b"2")]) is None, "no wish at all"
