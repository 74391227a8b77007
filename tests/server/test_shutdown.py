from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from anychip.config import ServeConfig
from anychip.server.exposure import exposures
from served import COMMAND, ENVIRONMENT, alive, children, server_process, wait_until

SLOW = ("--chip-option", "step_s=0.02")


def named_sockets(pid: int) -> list[str]:
    """Paths of the Unix sockets that this process holds."""
    mine = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [line[7] for line in lines if len(line) > 7 and f"socket:[{line[6]}]" in mine]


class Call(threading.Thread):
    """A streamed completion, read to its end."""

    def __init__(self, url: str, tokens: int) -> None:
        super().__init__()
        self.body = {"prompt": "a", "max_tokens": tokens, "stream": True}
        self.url, self.lines, self.begun = url, [], threading.Event()
        self.start()
        assert self.begun.wait(20)

    def run(self) -> None:
        with httpx.stream("POST", self.url + "/v1/completions", json=self.body, timeout=30) as r:
            for line in r.iter_lines():
                self.begun.set()
                if line:
                    self.lines.append(line)

    def finish(self) -> str:
        self.join(20)
        assert self.lines[-1] == "data: [DONE]"
        return json.loads(self.lines[-2][6:])["choices"][0]["finish_reason"]


def test_sigterm_lets_running_calls_finish_and_refuses_new_ones(folder):
    with server_process(folder, *SLOW) as (process, url):
        call = Call(url, 60)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(url + "/ready").status_code == 503)
        refused = httpx.post(url + "/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert httpx.get(url + "/health").status_code == 200
        assert call.finish() == "length"
        assert process.wait(20) == 0


def test_sigterm_cuts_calls_at_the_deadline(folder):
    with server_process(folder, *SLOW, "--shutdown-timeout", "0.3") as (process, url):
        call = Call(url, 250)
        process.send_signal(signal.SIGTERM)
        assert call.finish() == "abort"
        assert process.wait(20) == 0


def test_a_body_that_never_ends_is_cut_without_a_traceback(folder):
    with server_process(folder) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as half:
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            half.sendall(head.encode() + b'Content-Type: application/json\r\n\r\n{"prompt": ')
            assert httpx.get(url + "/ready").status_code == 200  # the half has been read by then
            process.send_signal(signal.SIGTERM)
            assert b" 503 " in half.recv(4096)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()


def test_a_second_signal_ends_at_once(folder):
    with server_process(folder, *SLOW) as (process, url):
        call = Call(url, 250)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(url + "/ready").status_code == 503)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        call.join(20)


def test_an_idle_server_ends_with_zero_and_leaves_no_child(folder):
    with server_process(folder) as (process, _):
        mine = children(process.pid)
        assert len(mine) == 2  # the engine and the template's renderer
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        wait_until(lambda: not any(alive(child) for child in mine))


def test_kill_9_of_the_server_leaves_nothing_behind_even_in_a_step(folder, tmp_path):
    """No child, no socket in a file system, no shared memory."""
    with server_process(folder, TMPDIR=str(tmp_path)) as (process, url):
        mine = children(process.pid)
        for pid in (process.pid, *mine):
            assert named_sockets(pid) == []
            assert "/dev/shm/" not in Path(f"/proc/{pid}/maps").read_text()
        hang = {"prompt": "\x04", "max_tokens": 1}
        thread = threading.Thread(target=post_and_forget, args=(url, hang))
        thread.start()
        wait_until(lambda: httpx.get(url + "/server_info").json()["live_requests"] == 1)
        process.kill()
        wait_until(lambda: not any(alive(child) for child in mine))
        thread.join(10)
        assert list(tmp_path.iterdir()) == []


def post_and_forget(url, body):
    with pytest.raises(httpx.HTTPError):
        httpx.post(url + "/v1/completions", json=body, timeout=30)


def test_a_signal_to_the_whole_group_reaches_the_server_alone(folder):
    with server_process(folder, *SLOW) as (process, url):
        engine = children(process.pid)[0]
        call = Call(url, 60)
        os.kill(engine, signal.SIGTERM)
        os.kill(engine, signal.SIGINT)
        assert call.finish() == "length"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def start(folder, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, str(folder), *flags],
        capture_output=True,
        env=ENVIRONMENT,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--chip-option", "start_error=no such chip"), "no such chip"),
        (("--chip-option", "crash_in_start=1"), "killed by SIGKILL"),
        (("--chat-template", "/nonexistent"), "--chat-template: cannot read"),
        (("--tokenizer-path", "/nonexistent"), "/nonexistent: no such file or folder"),
        (("--api-key-file", "/nonexistent"), "--api-key-file: /nonexistent: it cannot be read"),
        (("--ssl-certfile", "/none"), "--ssl-certfile: /none cannot be read"),
        (("--host", "no.such.host.invalid"), "--host: 'no.such.host.invalid'"),
    ],
)
def test_a_failed_start_says_why_and_exits_with_one(folder, flags, text):
    ended = start(folder, "--port", "0", *flags)
    assert ended.returncode == 1
    assert text in ended.stderr and "Traceback" not in ended.stderr


def test_a_port_in_use_is_told_before_anything_is_started(folder, server):
    port = server.url.rpartition(":")[2]
    ended = start(folder, "--port", port, "--chip-option", "start_s=600")
    assert ended.returncode == 1 and "is in use" in ended.stderr


def test_sigterm_while_the_model_loads_ends_the_start(folder):
    flags = ("--port", "0", "--chip-option", "start_s=60")
    with subprocess.Popen([*COMMAND, str(folder), *flags], env=ENVIRONMENT) as process:
        try:
            wait_until(lambda: len(children(process.pid)) == 2)
            mine = children(process.pid)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            wait_until(lambda: not any(alive(child) for child in mine))
        finally:
            process.kill()


def test_listening_wide_without_a_key_warns():
    (told,) = exposures(ServeConfig(host="0.0.0.0"), locked=False)
    assert "WITHOUT A KEY" in told
    assert exposures(ServeConfig(host="0.0.0.0"), locked=True) == []
    for host in ("127.0.0.1", "::1"):
        assert exposures(ServeConfig(host=host), locked=False) == []
