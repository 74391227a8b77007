"""Commands that are given a hub's name, with the real client, a hub on the loopback, a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from typed import Typed

from anychip.model.tiny import write_tiny
from anychip.offline import Engine
from hub_server import Hub, HubServer, write_cache
from served import ENVIRONMENT

ID = "org/tiny-GGUF"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return {
        f"tiny-{name}.gguf": write_tiny(folder, name, context=64).read_bytes()
        for name in ("q8_0", "q4_0")
    }


@pytest.fixture
def hub(files):
    hub = Hub({ID: files})
    with HubServer(hub) as server:
        hub.url = server.url
        yield hub


def environment(hub: Hub, home) -> dict[str, str]:
    return {**ENVIRONMENT, "HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HOME": str(home)}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "anychip", *words]


def run(hub: Hub, home, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), env=environment(hub, home), capture_output=True, text=True, timeout=100
    )


def test_generate_fetches_once_and_then_needs_no_hub(hub, tmp_path):
    words = ("generate", "--model-path", f"{ID}:q4_0", "--backend", "fake", "--prompt", "ab")
    words += ("--max-tokens", "3", "--json")
    first = run(hub, tmp_path, *words)
    assert first.returncode == 0, first.stderr
    assert f"fetching {ID}: " in first.stderr and " MiB/s" in first.stderr
    hub.down = True
    again = run(hub, tmp_path, *words)
    assert again.returncode == 0, again.stderr
    assert "taken from the cache" in again.stderr and "fetching" not in again.stderr
    ids = [json.loads(done.stdout)["token_ids"] for done in (first, again)]
    assert ids[0] == ids[1] and len(ids[0]) == 3


@pytest.mark.parametrize("name", ["coverage", "doctor", "serve", "chat", "generate", "bisect"])
def test_every_command_that_takes_a_model_asks_for_the_one_that_was_meant(hub, tmp_path, name):
    more = {"bisect": ("--backend-ref", "fake"), "generate": ("--prompt", "a")}.get(name, ())
    done = run(hub, tmp_path, name, "--model-path", ID, "--backend", "fake", *more)
    assert done.returncode in (1, 2)
    said = done.stderr.strip().splitlines()[-1]
    assert "several .gguf files; name one of them: org/tiny-GGUF:q4_0 (" in said


def test_a_terminal_shows_a_bar_with_bytes_and_rate(hub, tmp_path):
    hub.held["tiny-q4_0.gguf"] = threading.Event()
    words = ("-m", "anychip", "coverage", "--model-path", f"{ID}:q4_0", "--backend", "fake")
    with Typed(*words, **environment(hub, tmp_path)) as typed:
        seen = typed.until("kB")
        hub.held["tiny-q4_0.gguf"].set()
        assert typed.end() == 0
    assert ID in seen
    assert re.search(r"([\d.]+)/\1 kB.* MB/s", typed.screen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_that_fetches(hub, tmp_path, number):
    hub.held["tiny-q4_0.gguf"] = held = threading.Event()
    words = command("serve", "--model-path", f"{ID}:q4_0", "--port", "0")
    process = subprocess.Popen(
        words, env=environment(hub, tmp_path), stderr=subprocess.PIPE, text=True
    )
    try:
        assert "fetching" in process.stderr.readline()
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 0, said
        assert "while starting" in said and "Traceback" not in said
    finally:
        held.set()
        process.kill()


def test_an_engine_in_python_answers_from_the_cache(files, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    write_cache(tmp_path / "hub", ID, files)
    with Engine(f"{ID}:q8_0", backend="fake", max_total_tokens=64) as engine:
        assert engine.info.model_name == f"{ID}:q8_0"
        assert engine.generate("ab", {"max_new_tokens": 2}).completion_tokens == 2
