"""The command itself before two real servers, one of which is killed while it answers."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager

import openai
import pytest

from served import ENVIRONMENT, model_folder, server_process

SLOW = ("--chip-option", "step_s=0.02", "--context-length", "4096")


@contextmanager
def router_process(workers: dict[str, str], *flags: str):
    """`anychip router` on a free port; yields (process, url)."""
    named = [word for name, url in workers.items() for word in ("--worker", f"{name}={url}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "anychip", "router", "--port", "0", *named, *flags],
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    try:
        line = next(line for line in process.stderr if "serves at" in line)
        yield process, line.split("serves at ")[1].strip()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("router") / "model")


def ask(client, prompt: str, **changes):
    words = {"model": client.models.list().data[0].id, "prompt": prompt, "max_tokens": 1000}
    return client.completions.with_raw_response.create(**{**words, **changes})


def test_a_server_that_is_killed_takes_its_own_stream_along_and_nothing_else(folder):
    with (
        server_process(folder, *SLOW) as (one, first),
        server_process(folder, *SLOW) as (_, second),
        router_process({"one": first, "two": second}) as (router, url),
    ):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=2)
        streams = {}
        for prompt in ("a", "b"):  # equals take turns
            answer = ask(client, prompt, stream=True)
            streams[answer.headers["x-anychip-worker"]] = answer.parse()
        assert set(streams) == {"one", "two"}
        for stream in streams.values():
            next(stream)
        one.kill()
        with pytest.raises(openai.APIError, match="worker 'one' broke off"):
            list(streams["one"])
        for _ in range(4):
            answer = ask(client, "c", max_tokens=1)
            assert answer.headers["x-anychip-worker"] == "two"
        assert all(next(streams["two"]).choices for _ in range(5)), "it goes on"
        streams["two"].close()
        router.send_signal(signal.SIGTERM)
        assert router.wait(60) == 0
