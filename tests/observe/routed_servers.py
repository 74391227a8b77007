"""A real router before two real servers and one worker that dies, all of them traced."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
from observed_servers import PATIENCE_S, await_ready, start

from otlp_receiver import Collector, collecting
from served import ENVIRONMENT

RULE = "choices>1: doomed"
ANSWER = {"choices": [{"index": 0, "text": "x", "finish_reason": "length"}], "model": "tiny"}


@dataclass(frozen=True)
class Routed:
    """A router at `target`, whose worker `doomed` is gone, and what its traces came to."""

    target: str
    model: str
    collector: Collector

    @property
    def url(self) -> str:
        return f"http://{self.target}"

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def complete(self, call_id: str, **changes) -> httpx.Response:
        body = {"model": self.model, "prompt": f"word {call_id}", "max_tokens": 3} | changes
        headers = {"x-request-id": call_id, **changes.pop("headers", {})}
        body.pop("headers", None)
        return httpx.post(f"{self.url}/v1/completions", json=body, headers=headers, timeout=60)


@contextmanager
def routed(model: Path, folder: Path) -> Iterator[Routed]:
    """All is ready, and the worker has died."""
    with ExitStack() as ending:
        collector = ending.enter_context(collecting())
        told = ["--otlp-traces-endpoint", collector.url, "--otlp-service-name"]
        started = {}
        for name in ("one", "two"):
            place = folder / name
            place.mkdir()
            words = ["-m", "anychip", "serve", "--backend", "fake", "--model-path", str(model)]
            words += ["--max-total-tokens", "2048", "--max-running-requests", "4"]
            words += ["--skip-server-warmup", "--served-model-name", "tiny", *told, name]
            started[name] = start(place, words, ENVIRONMENT)
            ending.callback(started[name][0].wait)
            ending.callback(started[name][0].kill)
        servers = {name: await_ready(name, *of).url for name, of in started.items()}
        doomed, die = _doomed()
        ending.callback(die)
        workers = {**servers, "doomed": doomed}
        words = ["-m", "anychip", "router", "--rule", RULE, "--rule-fallback", "any"]
        for name, url in workers.items():
            words += ["--worker", f"{name}={url}"]
        words += ["--health-check-interval-s", "3600", *told, "router"]
        process, log = start(folder, words, ENVIRONMENT)
        ending.callback(process.wait, 60)
        ending.callback(process.terminate)
        found = Routed(_target(process, log), "tiny", collector)
        _until_all_are_ready(found)
        die()
        yield found


def _doomed():
    """A worker that answers until it is ended, and how to end it."""

    class Worker(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self._answer(ANSWER)

        def _answer(self, told) -> None:
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()

    def die() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}", die


def _target(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        found = re.search(r"ready: the router .* http://(127\.0\.0\.1:\d+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"the router never listened: {log.read_text()}")


def _until_all_are_ready(found: Routed) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while "anychip_router_workers_ready 3.0" not in found.metrics():
        if time.monotonic() > deadline:
            raise AssertionError(found.metrics())
        time.sleep(0.05)


@contextmanager
def asking(found: Routed) -> Iterator[None]:
    """Clients that ask in all ways until the block ends, at a pace that a busy machine can keep."""
    over, errors = threading.Event(), []

    def ask_on() -> None:
        try:
            for turn in itertools.count():
                if over.wait(0.05):
                    return
                for extra in ({}, {"n": 2}, {"stream": True}):
                    answer = found.complete(f"load-{turn}-{len(extra)}", **extra)
                    # Until it is known to be sick, the worker that died is its rule's only one.
                    assert answer.status_code in ((200, 503) if "n" in extra else (200,))
        except Exception as error:  # noqa: BLE001 (raised again in the test's thread)
            errors.append(error)

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)
    assert not errors, errors
