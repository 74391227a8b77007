"""One line a call, whatever became of it, and the log as JSON."""

from __future__ import annotations

import json
import socket
import stat
from urllib.parse import urlsplit

import pytest

from anychip.engine.messages import StartError
from anychip.http.access_log import open_access_log
from scripted_engine import FAIL
from served import bearer, config_for, running, server_process, wait_until

KEY, ADMIN = "k" * 24, "a" * 24
CHAT = {"messages": [{"role": "user", "content": "a secret of mine"}], "max_tokens": 5}
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("access") / "access.jsonl"


@pytest.fixture(scope="module")
def watched(folder, log):
    keys = log.with_name("keys")
    keys.write_text(f"alice {KEY}\n")
    keys.chmod(0o600)
    config = config_for(
        folder,
        access_log=str(log),
        log_format="json",
        api_key_file=str(keys),
        admin_api_key=ADMIN,
        max_request_bytes=4096,
        chip_option={"step_s": "0.01"},
    )
    with running(config) as server:
        yield server


@pytest.fixture(scope="module")
def line(log):
    """The line of a call, waiting for it."""

    def find(request_id):
        def lines():
            text = log.read_text() if log.exists() else ""
            found = map(json.loads, text.split("\n")[:-1])  # the last may be half written
            return [one for one in found if one["request_id"] == request_id]

        wait_until(lines)
        return lines()[0]

    return find


@pytest.fixture(scope="module")
def ask(watched):
    with watched.http() as http:

        def send(call_id, path=PATH, body=CHAT, key=KEY):
            headers = {**bearer(key), "x-request-id": call_id}
            return http.post(path, json=body, headers=headers)

        yield send


def test_an_answered_call(ask, line):
    answer = ask("one")
    assert answer.headers["x-request-id"] == "one"
    found, usage = line("one"), answer.json()["usage"]
    expected = {
        "status": 200,
        "method": "POST",
        "path": PATH,
        "outcome": "complete",
        "caller": "alice",
        "model": "tiny",
        "id": answer.json()["id"],
        "stream": False,
        "prompt_tokens": usage["prompt_tokens"],
        "output_tokens": 5,
        "cached_tokens": 0,
        "finish": "length",
        "bytes_out": len(answer.content),
        "error": None,
        "trace": None,
    }
    assert {name: found[name] for name in expected} == expected
    assert 0 < found["ttft"] <= found["seconds"] and found["bytes_in"] > 0


def test_a_streamed_call(ask, line):
    answer = ask("two", body={**CHAT, "stream": True})
    found = line("two")
    assert (found["stream"], found["outcome"], found["output_tokens"]) == (True, "complete", 5)
    assert found["bytes_out"] == len(answer.content)


@pytest.mark.parametrize(
    ("name", "asked", "status", "error"),
    [
        ("no-key", {"key": "wrong" * 5}, 401, "invalid_api_key"),
        ("no-path", {"path": "/nothing"}, 404, "unknown_url"),
        ("no-model", {"body": {**CHAT, "model": "none"}}, 404, "model_not_found"),
        ("long", {"body": {**CHAT, "user": "x" * 5000}}, 413, None),
        ("not-admin", {"path": "/flush_cache", "body": {}}, 403, "admin_key_required"),
        ("failed", {"path": "/v1/completions", "body": {"prompt": f"a{chr(FAIL)}"}}, 500, None),
    ],
)
def test_a_refused_call(ask, line, name, asked, status, error):
    assert ask(name, **asked).status_code == status
    found = line(name)
    assert (found["status"], found["outcome"]) == (status, "complete")
    assert found["error"] == error if error else found["error"]
    assert found["caller"] == (None if status == 401 else "alice")


def test_the_admin_is_told_from_tenants(ask, line):
    ask("admin", key=ADMIN)
    assert line("admin")["caller"] == "admin"


@pytest.mark.parametrize("stream", [True, False])
def test_a_broken_connection(watched, line, stream):
    address, name = urlsplit(watched.url), f"broken-{stream}"
    body = json.dumps({**CHAT, "stream": stream, "max_tokens": 150}).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {KEY}\r\n"
        f"x-request-id: {name}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    running_before = watched.service.client.stats.steps
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + body)
        wait_until(lambda: watched.service.client.stats.steps > running_before + 2)
    found = line(name)
    assert (found["outcome"], found["finish"]) == ("disconnected", "cut short")


@pytest.mark.parametrize("given", ["", "two words", "x" * 200])
def test_an_id_that_cannot_be_told_is_replaced(ask, given):
    assert ask(given).headers["x-request-id"].startswith("req-")


def test_no_key_and_no_text_is_in_it_and_others_cannot_read_it(ask, log, line):
    ask("last")
    line("last")
    text = log.read_text()
    assert KEY not in text and ADMIN not in text and "secret" not in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_rotation_is_noticed(ask, log, line):
    log.rename(log.with_name("access.1"))
    ask("rotated")
    assert line("rotated")["status"] == 200


def test_lines_to_read(folder, tmp_path, http):
    target = tmp_path / "access.log"
    with running(config_for(folder, access_log=str(target))) as server, server.http() as http:
        http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 2})
        http.get("/a%0Ab c")
    first, second = target.read_text().splitlines()
    assert first.split()[1:4] == ["200", "POST", "/v1/completions"]
    assert " outcome=complete " in first and " output_tokens=2 " in first
    assert second.split()[1:4] == ["404", "GET", "/a%0Ab%20c"] and "model=" not in second


def test_a_full_disk_is_told_once_and_ends_neither_server_nor_its_shutdown(folder, caplog):
    """/dev/full: nothing is written and nothing is kept to be written."""
    config = config_for(folder, access_log="/dev/full")
    with running(config) as server, server.http() as http:
        for _ in range(3):
            assert http.get("/ready").status_code == 200
    assert server.exit_code == 0
    told = [r.getMessage() for r in caplog.records if "lines are lost" in r.getMessage()]
    assert len(told) == 1 and "No space left on device" in told[0]


def test_a_place_that_cannot_be_written_stops_the_start(folder, tmp_path):
    config = config_for(folder, access_log=str(tmp_path / "none" / "access.log"))
    with pytest.raises(StartError, match=r"--access-log: cannot write .* No such file"):
        open_access_log(config)


def test_the_log_as_json(folder):
    import httpx

    with server_process(folder, "--log-format", "json", "--access-log", "-") as (process, url):
        url = url.rstrip('"}')
        body = {"prompt": f"a{chr(FAIL)}", "max_tokens": 2}
        headers = {"x-request-id": "mine"}
        answer = httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=30)
        assert answer.status_code == 500
        process.terminate()
        lines = [json.loads(line) for line in process.stderr]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    failed = next(one for one in lines if "scripted failure" in one["message"])
    assert failed["logger"] == "anychip.engine" and failed["level"] == "error"
    assert (failed["error_layer"], failed["error_kind"]) == ("execution", "device lost")
    assert any(one.get("request_id") == "mine" for one in lines)
