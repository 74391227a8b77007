"""Servers that are watched: processes of `anychip serve`, and clients that keep them at work."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

FAULTY = """
import sys
from anychip.config import read_config
from anychip.server.run import serve
sys.exit(serve(read_config(sys.argv[1:], {}), "faulty_engine:build"))
"""
"""A server whose engine has the faults that `faulty_engine` is told of."""
STEM = "A request enters the server, becomes tokens, and the engine answers one step at a time. "
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Observed:
    """A server process and where it listens, `host:port`."""

    chip: str
    target: str
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://{self.target}"

    def metrics(self) -> str:
        """Its page for Prometheus."""
        return httpx.get(f"{self.url}/metrics", timeout=30).text


def start(folder: Path, command: Sequence[str], environ: Mapping[str, str]):
    """A server that is not ready yet, and its log."""
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *command, "--port", "0"], env=environ, stdout=file, stderr=file
        )
    return process, log


def await_ready(chip: str, process: subprocess.Popen[bytes], log: Path) -> Observed:
    """Until the server takes requests."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        found = re.search(r"ready: .* serves at http://(127\.0\.0\.1:\d+)", log.read_text())
        if found:
            return Observed(chip, found[1], process)
        time.sleep(0.05)
    raise AssertionError(f"{chip} was never ready: {log.read_text()}")


@contextmanager
def load(*servers: Observed):
    """A client of each server asks in all ways, again and again, until the block ends."""
    over, errors = threading.Event(), []
    threads = [threading.Thread(target=_ask_on, args=(s, over, errors)) for s in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert not errors, errors


def _ask_on(server: Observed, over: threading.Event, errors: list[Exception]) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        for turn in itertools.count():
            if over.is_set():
                return
            try:
                for ask in (_complete, _chat_by_schema, _stream, _leave, _blunder):
                    ask(http, turn)
            except Exception as error:  # noqa: BLE001 (raised again in the test's thread)
                errors.append(error)
                return


def _complete(http: httpx.Client, turn: int) -> None:
    """Two prompts that share their beginning, so that the second finds it in the cache."""
    for end in ("first", "second"):
        body = {"prompt": f"{STEM}{end} {turn}", "max_tokens": 8, "temperature": 0}
        assert http.post("/v1/completions", json=body).status_code == 200


def _chat_by_schema(http: httpx.Client, turn: int) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [turn]}}, "required": ["n"]}
    asked = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "n?"}], "response_format": asked}
    answer = http.post("/v1/chat/completions", json=body | {"max_tokens": 32})
    assert answer.status_code == 200, answer.text


def _stream(http: httpx.Client, turn: int) -> None:
    body = {"prompt": f"stream {turn}", "max_tokens": 8, "stream": True, "ignore_eos": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200 and answer.read()


def _leave(http: httpx.Client, turn: int) -> None:
    """Read one piece of a long answer and hang up: the server aborts it."""
    body = {"prompt": f"leave {turn}", "max_tokens": 200, "stream": True, "ignore_eos": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        assert next(answer.iter_bytes())


def _blunder(http: httpx.Client, turn: int) -> None:
    body = {"prompt": f"wrong {turn}", "max_tokens": -1}
    assert http.post("/v1/completions", json=body).status_code == 400


def provoke_an_error(server: Observed) -> None:
    """Ask until the engine's second step, which finds no memory, has failed a request."""
    body = {"prompt": STEM, "max_tokens": 8, "ignore_eos": True}
    assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 500
