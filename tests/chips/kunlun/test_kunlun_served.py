"""`anychip serve --backend kunlun`, a process on loopback: answers, cache, death and end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from kunlun_looked import command, environment
from sim_trees import SimTree, with_accounts

from answers.equality import config, greedy
from anychip.engine.offline import OfflineEngine
from served import alive, wait_until

pytestmark = pytest.mark.usefixtures("compiled")
LIMITS = {"context_length": 512, "max_total_tokens": 2048, "max_running_requests": 4}
SYSTEM = "You are a careful guide to the cities of Europe. Answer in one short sentence."
QUESTION = "What is the capital of France, and which river runs through the middle of it?"
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in LIMITS.items()]
NEW_TOKENS = 24
USED_COLUMN = 17
"""Of `xpu_smi -m`: MiB of device memory in use."""


@dataclass(frozen=True)
class Served:
    """The server's process, where it listens, what it logged, and the card beneath it."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    tree: SimTree

    def used(self) -> int:
        """MiB in use on the card, as another process sees it."""
        return int(self.tree.smi("-m").splitlines()[0].split()[USED_COLUMN])

    def engines(self) -> list[int]:
        """Child processes that have the vendor's runtime loaded: the engine, or none."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        text = " ".join((task / "children").read_text() for task in tasks)
        return [int(p) for p in text.split() if "libxpurt" in _maps(int(p))]

    def chat(self, *turns: str) -> dict:
        """A greedy answer; turns are the user's and the assistant's, in turn."""
        roles = ("user", "assistant")
        said = [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]
        asked = {"messages": [{"role": "system", "content": SYSTEM}, *said], "temperature": 0}
        url = f"{self.url}/v1/chat/completions"
        answer = httpx.post(url, json=asked | {"max_tokens": NEW_TOKENS}, timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def is_ready(self) -> bool:
        return httpx.get(f"{self.url}/ready").status_code == 200


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it ended meanwhile
        return ""


@pytest.fixture(scope="module")
def served(sdk, demo_model, tmp_path_factory) -> Iterator[Served]:
    """On accounts of its own, so that the card is this server's alone."""
    folder = tmp_path_factory.mktemp("served")
    tree, log = with_accounts(sdk.root, folder / "state"), folder / "log"
    words = ["--model-path", str(demo_model), "--dtype", "float32", "--port", "0", *FLAGS]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command("serve", *words),
            env=environment(tree, {}),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        wait_until(lambda: process.poll() is not None or "ready: " in log.read_text(), 120)
        found = re.search(r"ready: .* serves at (http://127\.0\.0\.1:\d+)", log.read_text())
        assert found, log.read_text()
        yield Served(process, found[1], log, tree)
    finally:
        process.kill()
        process.wait(20)


def test_the_log_names_the_backend_and_what_it_runs_on(served):
    text = served.log.read_text()
    assert "chip asked for: kunlun; opened: kunlun (kunlunxin), device 0: P800" in text
    assert f"sdk_root={served.tree.root}/sdk" in text and "SIMULATED" in text
    assert "paged_attention      native    kunlun.paged_attention\n" in text
    assert served.used() > 500  # SmolLM2 in float32


def test_an_answer_is_that_of_another_chip(served, demo_model):
    asked = config(demo_model, dtype="float32", backend="cpu", **LIMITS)
    with OfflineEngine(asked) as offline:
        ids = offline.tokenizer.encode(
            "The capital of France is Paris, and the capital of Italy is"
        )
        (wanted,) = offline.generate([ids], greedy(NEW_TOKENS))
    sampling = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling}
    answer = httpx.post(f"{served.url}/generate", json=body, timeout=120).json()
    assert answer["output_ids"] == wanted.token_ids
    assert "Rome" in answer["text"]


def test_the_second_turn_of_a_chat_comes_from_the_cache(served):
    first = served.chat(QUESTION)
    text = first["choices"][0]["message"]["content"]
    assert "Paris" in text
    second = served.chat(QUESTION, text, "And of Italy?")
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < second["usage"]["prompt_tokens"]
    assert cached >= 64  # a page of the default size at least


def test_a_killed_engine_gives_its_memory_back_and_comes_again(served):
    before, held, (engine,) = served.chat(QUESTION), served.used(), served.engines()
    os.kill(engine, signal.SIGKILL)
    wait_until(lambda: served.used() == 0, 2.0)  # the supervisor waits a second before another
    wait_until(lambda: served.engines() not in ([], [engine]) and served.is_ready(), 60)
    assert not alive(engine)
    assert served.chat(QUESTION)["choices"] == before["choices"]
    assert abs(served.used() - held) <= 1  # once, not twice
    assert "engine died" in served.log.read_text() and "SIGKILL" in served.log.read_text()


def test_sigterm_ends_all_of_it(served):
    (engine,) = served.engines()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(30) == 0
    assert not alive(engine)
    assert served.used() == 0
    assert "Traceback" not in served.log.read_text()
