"""https asked of an http server and the other way: every command that has an address says so."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import httpx
import pytest
import trustme
from scripted_server import plain_server
from test_record_proxy import recording

from anychip.__main__ import main
from anychip.wrong_scheme import plain as in_words

TRACE = "Timestamp,Request tokens,Response tokens\n1,1,1\n"


@pytest.fixture(scope="module")
def plain():
    with plain_server() as server:
        yield server


@pytest.fixture(scope="module")
def secure():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with plain_server() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.url = server.url.replace("http:", "https:")
        yield server


def asked(command: str, url: str, tmp_path: Path, capsys) -> str:
    """What the command says on standard error; it must not end well."""
    words = ["--url", url]
    if command == "replay":
        (tmp_path / "trace.csv").write_text(TRACE)
        words = [str(tmp_path / "trace.csv"), *words]
    assert main([command, *words]) in (1, 2)
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ["replay", "scan", "diagnose", "chat"])
def test_the_other_scheme_is_named(command, plain, secure, tmp_path, capsys):
    other = plain.url.replace("http:", "https:")
    told = asked(command, other, tmp_path, capsys)
    assert f"this server speaks http, not https: --url {plain.url}" in told
    told = asked(command, secure.url.replace("https:", "http:"), tmp_path, capsys)
    assert f"this server speaks https, not http: --url {secure.url}" in told
    told = asked(command, secure.url, tmp_path, capsys)
    assert "its certificate is not trusted" in told and "SSL_CERT_FILE=FILE" in told


def test_the_proxy_tells_its_client_and_its_log(secure, tmp_path):
    wrong = secure.url.replace("https:", "http:")
    with recording(wrong, tmp_path / "r.jsonl") as (url, process):
        answer = httpx.post(url + "/v1/completions", json={"prompt": "a"}, timeout=30)
        line = process.stderr.readline()
    assert answer.status_code == 502
    for told in (answer.json()["error"]["message"], line):
        assert f"this server speaks https, not http: --upstream {secure.url}" in told


def test_a_dead_port_is_told_without_the_librarys_settings(tmp_path, capsys):
    for command in ("replay", "chat"):
        for host in ("127.0.0.1", "localhost"):
            told = asked(command, f"http://{host}:1", tmp_path, capsys)
            assert "speaks" not in told and "ssl:" not in told
            assert command == "chat" or f"host {host}:1: nothing listens there" in told
            assert "nothing listens there; start a server there, or give another --url" in told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Cannot connect to host a:1 ssl:default [Name or service not known]",
            "Cannot connect to host a:1: Name or service not known",
        ),
        (
            "Cannot connect to host a:1 ssl:default [A: [Errno 111] x, [Errno 113] y]",
            "Cannot connect to host a:1: A: [Errno 111] x, [Errno 113] y",
        ),
        ("Server\ndisconnected", "Server disconnected"),
        ("", "ValueError"),
    ],
)
def test_other_reasons_stay_as_they_are(said, told):
    assert in_words(ValueError(said)) == told


def test_a_lookup_that_fails_keeps_its_reason():
    error = ValueError("Cannot connect to host a:1 ssl:True [Name not known]")
    error.os_error = socket.gaierror(socket.EAI_NONAME, "Name not known")
    assert in_words(error) == "Cannot connect to host a:1: Name not known"
