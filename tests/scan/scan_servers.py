"""Servers of a tiny model on the fake chip, healthy or slow on demand, and load for them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

from served import ENVIRONMENT, _wait_ready

SLOW = ("lock_ms=60", "block_step=4", "disk_pages=32")
"""All three hidden causes of slowness at once."""


@contextmanager
def served(model, *options, **environ):
    """The real `anychip serve` on the fake chip, in a process of its own; yields its URL."""
    flags = [part for option in options for part in ("--chip-option", option)]
    command = [sys.executable, "-m", "anychip", "serve", "--model-path", str(model), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--backend", "fake", "--max-total-tokens", "4096", *flags],
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **environ},
        text=True,
    )
    try:
        yield _wait_ready(process)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextmanager
def loaded(url, callers=2):
    """Callers that ask all the time, until the block is left."""
    over, asked = threading.Event(), threading.Event()
    fields = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
    body = json.dumps({"prompt": "hello hello", **fields}).encode()

    def ask():
        while not over.is_set():
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(url + "/v1/completions", body, headers)
            urllib.request.urlopen(request, timeout=60).read()
            asked.set()

    threads = [threading.Thread(target=ask) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        assert asked.wait(60)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
