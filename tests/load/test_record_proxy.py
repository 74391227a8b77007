"""`anychip record` before a plain server: what passes is unchanged, and is in the record."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest
from scripted_server import plain_server

from anychip.__main__ import main
from anychip.cli.record import _refuse_itself
from anychip.config import ConfigError
from anychip.http.listening import bind
from anychip.record.reader import read_record
from served import ENVIRONMENT, wait_until

BODY = {"model": "sound", "prompt": "once upon a time", "max_tokens": 3, "temperature": 0.5}
CHAT = {"model": "sound", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


@contextmanager
def recording(upstream: str, out, *flags: str):
    """The real command in a process of its own; yields its address and process."""
    words = ["-m", "anychip", "record", "--upstream", upstream, "--port", "0", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, *words, *flags], stderr=subprocess.PIPE, env=ENVIRONMENT, text=True
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "passes on to" in line:
                yield line.split("recording: ")[1].split()[0], process
                break
        else:
            raise AssertionError("never ready: " + "".join(lines))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(30)
        finally:
            process.kill()
            process.stderr.close()
    assert code == 0


def test_a_connection_that_the_server_has_just_closed_costs_no_call(tmp_path):
    with plain_server() as server, recording(server.url, tmp_path / "record.jsonl") as (url, _):
        server.once = True
        answers = [httpx.post(url + "/v1/completions", json=BODY) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3


@pytest.fixture(scope="module")
def plain():
    with plain_server() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(plain, tmp_path_factory):
    out = tmp_path_factory.mktemp("record") / "record.jsonl"
    with recording(plain.url, out) as (url, _), httpx.Client(base_url=url, timeout=30) as client:
        yield client, out


def lines_of(out, count: int):
    wait_until(lambda: len(read_record(out).requests) >= count)
    return read_record(out).requests


def test_what_passes_is_what_would_have_come(plain, proxy):
    client, _ = proxy
    headers = {
        "authorization": "Bearer secret",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-mine": "kept",
    }
    for path, body in (
        ("/v1/completions?a=b%20c", {**BODY, "stream": True}),
        ("/v1/completions", {**BODY, "model": "refuses"}),
        ("/v1/completions", {**BODY, "model": "whole"}),
        ("/v1/elsewhere/%2Fx", {**BODY, "model": "fails"}),
    ):
        through = client.post(path, json=body, headers=headers)
        there, sent, seen = plain.seen[-1]
        direct = httpx.post(plain.url + path, json=body, headers=headers, timeout=30)
        assert (there, sent) == (path, body)
        low = {name.lower(): value for name, value in seen.items()}
        assert {name: low[name] for name in headers} == headers
        assert (through.status_code, through.content) == (direct.status_code, direct.content)
        for name in ("content-type", "server"):
            assert through.headers[name] == direct.headers[name]
    assert client.get("/v1/models").json()["data"][0] == {"id": "sound"}


def test_pieces_pass_as_they_come(plain, proxy):
    client, _ = proxy
    plain.gate.clear()
    try:
        with client.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as answer:
            lines = answer.iter_lines()
            assert json.loads(next(lines)[6:])["choices"][0]["text"] == "a"
            plain.gate.set()  # only now does the server go on
            assert "data: [DONE]" in list(lines)
    finally:
        plain.gate.set()


def test_calls_are_in_the_record_with_their_pieces(plain, tmp_path):
    out = tmp_path / "r"
    asked = {**BODY, "stream": True, "stream_options": {"include_usage": True}, "user": "me"}
    with recording(plain.url, out) as (url, _), httpx.Client(base_url=url, timeout=30) as client:
        key = {"authorization": "Bearer secret"}
        client.post("/v1/completions", json=asked, headers=key)
        client.post("/v1/chat/completions", json={**CHAT, "stream": True}, headers=key)
        client.post("/v1/completions", json={**BODY, "model": "whole"})
        client.post("/v1/completions", json={**BODY, "model": "busy"})
        client.post("/v1/completions", json={**BODY, "model": "cuts", "stream": True})
        client.post("/v1/completions", content=b"no json", headers={"content-type": "x/y"})
        client.get("/v1/models")
    record = read_record(out)
    assert record.header.by == "proxy" and record.header.privacy == "text" and not record.torn
    one, chat, whole, busy, cut, broken = record.requests
    assert (one.text, one.params, one.max_tokens) == (BODY["prompt"], {"temperature": 0.5}, 3)
    assert (one.response_text, one.response_tokens, one.finish) == ("aaa", 3, "length")
    assert (one.prompt_tokens, one.cached_tokens) == (16, 8)
    assert len(one.times) == 3 and one.times[-1] <= one.total_s
    assert chat.messages == CHAT["messages"] and chat.response_tokens == 2
    assert (whole.response_text, whole.finish, whole.error) == ("a", "stop", None)
    assert (busy.finish, busy.error) == ("error", "http 503")
    assert (cut.response_text, cut.error) == ("a", "cut")
    assert broken.error is not None
    text = out.read_text()
    assert "secret" not in text and '"me"' not in text


def test_an_answer_that_the_server_does_not_end_is_told_so_and_says_nothing_of_asgi(
    plain, tmp_path
):
    out = tmp_path / "r"
    with recording(plain.url, out) as (url, process):
        asked = {**BODY, "model": "torn stream", "stream": True}
        answer = httpx.post(f"{url}/v1/completions", json=asked, timeout=30)
        events = [line[6:] for line in answer.text.splitlines() if line]
        assert [json.loads(one)["choices"][0]["text"] for one in events[:2]] == ["a", "a"]
        told = json.loads(events[2])["error"]
        assert told["code"] == "upstream_lost" and len(events) == 3
        assert f"{plain.url}: the connection ended in the middle of the answer" in told["message"]
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{url}/v1/completions", json={**BODY, "model": "torn body"}, timeout=30)
        again = httpx.post(f"{url}/v1/completions", json={**BODY, "model": "whole"}, timeout=30)
        assert again.status_code == 200
        process.send_signal(signal.SIGTERM)
        log = process.stderr.read()
    assert log.count("broken off") == 2 and "ASGI" not in log and "Traceback" not in log
    assert [one.error for one in lines_of(out, 3)] == ["cut", "cut", None]


def test_a_websocket_is_not_passed_on(plain, proxy):
    client, _ = proxy
    before = len(plain.seen)
    told = client.get("/v1/realtime", headers={"upgrade": "websocket", "connection": "Upgrade"})
    assert told.status_code == 501 and "ask over plain HTTP" in told.json()["error"]["message"]
    assert len(plain.seen) == before


def test_what_a_proxy_recorded_can_be_replayed(plain, tmp_path, capsys):
    out = tmp_path / "r"
    with recording(plain.url, out) as (url, _):
        for body, path in ((BODY, "completions"), (CHAT, "chat/completions")):
            httpx.post(f"{url}/v1/{path}", json={**body, "stream": True}, timeout=30)
    before = len(plain.seen)
    assert main(["replay", str(out), "--url", plain.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["succeeded"] == 2
    bodies = {path: body for path, body, _ in plain.seen[before:]}
    assert bodies["/v1/completions"]["prompt"] == BODY["prompt"]
    assert bodies["/v1/completions"]["max_tokens"] == 3
    assert bodies["/v1/chat/completions"]["messages"] == CHAT["messages"]


def test_lengths_keep_no_content_and_hash_ids_alone(plain, tmp_path):
    out = tmp_path / "r"
    with recording(plain.url, out, "--privacy", "lengths") as (url, _):
        for prompt in ([7] * 100, [7] * 70, "a secret"):
            asked = {**BODY, "prompt": prompt, "stop": "hidden", "stream": True}
            httpx.post(f"{url}/v1/completions", json=asked, timeout=30)
    one, two, text = read_record(out).requests
    assert one.blocks[0] == two.blocks[0] and one.blocks[1] != two.blocks[1]
    assert (one.prompt_tokens, text.prompt_tokens, text.blocks) == (100, 8, None)
    assert one.params == {"temperature": 0.5}
    for word in ("secret", "hidden", '"aaa"', "7,7"):
        assert word not in out.read_text()


def test_a_client_that_leaves_is_left_by_the_server_behind_too(plain, proxy):
    client, out = proxy
    before = len(read_record(out).requests)
    plain.gate.clear()
    try:
        gone = {**BODY, "max_tokens": 50_000, "stream": True, "prompt": "leaves"}
        with client.stream("POST", "/v1/completions", json=gone) as answer:
            next(answer.iter_lines())
        line = lines_of(out, before + 1)[-1]
    finally:
        plain.gate.set()
    assert (line.text, line.finish, line.error) == ("leaves", "abort", "abort")
    wait_until(lambda: plain.left >= 1)


def test_packed_answers_pass_packed_and_are_read(plain, proxy):
    client, out = proxy
    before = len(read_record(out).requests)
    asked = {**BODY, "model": "packed"}
    with client.stream("POST", "/v1/completions", json=asked) as answer:
        raw = b"".join(answer.iter_raw())
    assert json.loads(gzip.decompress(raw))["choices"][0]["text"] == "packed"
    assert lines_of(out, before + 1)[-1].response_text == "packed"


def test_nobody_behind_is_a_bad_gateway(tmp_path):
    out = tmp_path / "r"
    with recording("http://127.0.0.1:1/v1", out) as (url, _):
        answer = httpx.post(f"{url}/v1/completions", json=BODY, timeout=30)
    assert answer.status_code == 502
    assert "http://127.0.0.1:1: Cannot connect" in answer.json()["error"]["message"]
    (line,) = read_record(out).requests
    assert (line.error, line.finish) == ("connect", "error")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "x"], "--upstream: it is needed"),
        (["--upstream", "http://h"], "--out: it is needed"),
        (["--upstream", "h:1", "--out", "OUT"], "--upstream: 'h:1' is no address"),
        (["--upstream", "http://h", "--out", "none/x"], "there is no folder none"),
        (["--upstream", "http://h", "--out", "OUT", "--privacy", "tokens"], "not one of text"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, words, told):
    named = [word.replace("OUT", str(tmp_path / "r")) for word in words]
    assert main(["record", "--port", "0", *named]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "upstream"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("0.0.0.0", "127.0.0.1")],
)
def test_a_proxy_before_itself_is_refused(host, upstream):
    with bind(host, 0) as listening:  # it does not listen: nobody is let in
        port = listening.getsockname()[1]
        with pytest.raises(ConfigError, match="where this proxy itself listens"):
            _refuse_itself(f"http://{upstream}:{port}/v1", host, listening)
        _refuse_itself(f"http://{upstream}:{port - 1}", host, listening)
        _refuse_itself(f"http://127.0.0.9:{port}", host, listening)
