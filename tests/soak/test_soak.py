"""Hours of mixed load, or seconds of it: memory, pages, files and threads stay where they were.

SOAK_SECONDS: how long the slow form lasts, an hour where it is not set. SOAK_REPORT: a file for
the samples as JSON. SOAK_MODEL: another model than the tiny one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from mixed_load import Client
from samples import Sample, child_of, growth, report, take_sample

import tiny_models
from served import _wait_ready, alive, wait_until

CLIENTS = 6
FLAGS = ("--context-length=256", "--max-total-tokens=2048", "--max-running-requests=4")


@contextmanager
def served(model: Path):
    """`anychip serve` on a free port, its log read to the end; yields (process id, url)."""
    command = [sys.executable, "-m", "anychip", "serve", "--model-path", str(model), *FLAGS]
    process = subprocess.Popen([*command, "--port=0"], stderr=subprocess.PIPE, text=True)
    try:
        url = _wait_ready(process)
        reading = threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True)
        reading.start()
        yield process.pid, url
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


class Soak:
    """Load on one server, in spells, and samples of what it holds."""

    def __init__(self, server: int, url: str) -> None:
        self.server, self.url = server, url
        self.engine = child_of(server, "anychip.engine.process")
        self.begun = time.monotonic()
        self.samples: list[Sample] = []
        self.seen: Counter[str] = Counter()
        self.answers: dict[str, str] = {}

    def sample(self) -> Sample:
        second = round(time.monotonic() - self.begun, 1)
        return take_sample(second, self.server, self.engine, self.url)

    def load(self, seconds: float, every_s: float) -> None:
        over = threading.Event()
        clients = [Client(self.url, seed, over, self.answers) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not over.wait(every_s):
            self.samples.append(self.sample())
        over.set()
        for client in clients:
            client.join(60)
            self.seen += client.seen
            if client.error is not None:
                raise client.error

    def rest(self) -> Sample:
        """Wait until everything has ended, then look."""
        wait_until(lambda: self.sample().pages_held == 0)
        wait_until(lambda: self.sample().server_files <= self.samples[0].server_files)
        return self.sample()


def soak(model: Path, seconds: float, every_s: float, most_mib: float) -> Soak:
    with served(model) as (server, url):
        run = Soak(server, url)
        run.load(min(seconds / 4, 30), every_s)  # what is made once is made here
        before = run.rest()
        run.samples.clear()
        run.load(seconds, every_s)
        if "SOAK_REPORT" in os.environ:
            text = json.dumps(report(run.samples, run.seen), indent=1)
            Path(os.environ["SOAK_REPORT"]).write_text(text)
        after = run.rest()
        assert after.idle() == before.idle()
        for name in ("server_mib", "engine_mib"):
            assert growth(run.samples, name) < most_mib, name
        for name in ("server_files", "server_threads"):
            assert abs(growth(run.samples, name)) < CLIENTS, name
    assert not alive(run.engine)
    acts = {"chat", "complete", "stream", "leave", "dawdle", "blunder"}
    assert acts <= run.seen.keys(), run.seen
    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    if "SOAK_MODEL" in os.environ:
        return Path(os.environ["SOAK_MODEL"])
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def test_twenty_seconds(model):
    soak(model, seconds=20, every_s=0.5, most_mib=16)


@pytest.mark.slow
def test_an_hour(model):
    soak(model, float(os.environ.get("SOAK_SECONDS", "3600")), every_s=5, most_mib=4)
