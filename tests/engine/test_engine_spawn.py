"""A process that waits for an engine's configuration: told late, told never, or gone before."""

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
from anychip.engine.spawn import Spawned, spawn, spawned_ahead
from served import ENVIRONMENT, alive, children, wait_until

WRONG = ("-m", "anychip", "serve", "--hlep")


def build(config, report):
    """A builder that tells its process and how it finds it."""
    raise StartError(f"{os.getpid()} {gc.isenabled()}")


def told_by_the_engine(spawned: Spawned) -> str:
    async def start():
        client = EngineClient(ServeConfig(model_path="/x"), f"{__name__}:build", spawned=spawned)
        try:
            await client.start()
        finally:
            await client.close(0)

    with pytest.raises(StartError) as refused:
        asyncio.run(start())
    return str(refused.value)


@pytest.mark.parametrize("ahead", ["", "anychip.engine.loading"])
def test_the_first_engine_runs_in_the_process_that_waits(ahead) -> None:
    spawned = spawn(ahead)
    try:
        assert told_by_the_engine(spawned) == f"{spawned.process.pid} True"
    finally:
        spawned.end()


def test_one_that_has_died_meanwhile_is_replaced() -> None:
    spawned = spawn()
    spawned.process.kill()
    spawned.process.wait()
    pid, collects = told_by_the_engine(spawned).split()
    assert int(pid) != spawned.process.pid and collects == "True"
    spawned.end()


def test_nothing_is_left_of_one_that_nobody_needed() -> None:
    with pytest.raises(ValueError), spawned_ahead() as spawned:
        assert alive(spawned.process.pid)
        raise ValueError
    assert spawned.process.returncode == -signal.SIGKILL
    assert spawned.ours.fileno() == -1
    spawned.end()  # once more does no harm


def test_a_process_ends_with_the_one_that_spawned_it() -> None:
    program = "from anychip.engine.spawn import spawn; import time; spawn(); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], env=ENVIRONMENT) as parent:
        wait_until(lambda: children(parent.pid))
        mine = children(parent.pid)
        parent.kill()
    wait_until(lambda: not any(alive(child) for child in mine))


def test_wrong_flags_are_one_line_and_leave_nobody_behind() -> None:
    with subprocess.Popen(
        [sys.executable, *WRONG], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as server:
        said = server.communicate(timeout=60)[1]  # at once: whoever is left would keep it open
    assert server.returncode == 2
    assert said.splitlines() == [
        "anychip: error: there is no flag --hlep; the nearest is --help (see --help)"
    ]
