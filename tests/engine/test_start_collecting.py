"""The collector of cycles rests while processes start, and works again before they do."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys

import pytest

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.engine.messages import StartError
from anychip.environment import engine_environment
from served import ENVIRONMENT
from tiny_models import make_hf_folder

TIMEOUT = "OPENBLAS_THREAD_TIMEOUT"


def run(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_works_again_but_for_what_was_there():
    head = "import gc; from anychip.collecting import rest, resume; "
    told = "print(gc.isenabled(), gc.get_freeze_count() > 1000)"
    assert run(f"{head}rest(); {told}") == "False False"
    assert run(f"{head}rest(); resume(); {told}") == "True True"
    assert run(f"{head}resume(); {told}") == "True False"


def build(config, report):
    """A builder that tells how it finds its process."""
    state = f"{gc.isenabled()} {gc.get_freeze_count() > 1000} {os.environ.get(TIMEOUT)}"
    raise StartError(state)


def test_an_engine_is_built_with_the_collector_at_work(monkeypatch):
    monkeypatch.delenv(TIMEOUT, raising=False)

    async def start():
        client = EngineClient(ServeConfig(model_path="/nowhere"), f"{__name__}:build")
        try:
            await client.start()
        finally:
            await client.close(0)

    with pytest.raises(StartError, match="True True 20"):
        asyncio.run(start())


def test_a_variable_of_the_users_own_stays():
    assert engine_environment({"PATH": "/bin"}) == {"PATH": "/bin", TIMEOUT: "20"}
    assert engine_environment({TIMEOUT: "28"}) == {TIMEOUT: "28"}


MAIN = """
import gc, sys
from anychip.collecting import rest
rest()
from anychip.config import read_config
from anychip.server.run import serve
code = serve(read_config(sys.argv[1:], {}), "scripted_engine:build")
print(gc.isenabled(), gc.get_freeze_count() > 1000)
sys.exit(code)
"""


def test_a_server_answers_with_the_collector_at_work(tmp_path):
    command = [sys.executable, "-c", MAIN, "--model-path", str(make_hf_folder(tmp_path))]
    with subprocess.Popen(
        [*command, "--port", "0"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert any("ready" in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert out.strip() == "True True"
