"""Processes, threads and files of an `anychip.Engine`: none is left, however it ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from anychip import Engine
from anychip.engine.messages import StartError
from anychip.offline import EngineClosed
from served import BUILDER, ENVIRONMENT, alive, children, config_for, wait_until


def held() -> tuple[list[str], set[int], set[str]]:
    """Open files by kind, child processes and threads of this process."""
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    files = [os.readlink(link) for link in links if link.is_symlink()]  # not the listing's own
    kinds = sorted(name.partition(":")[0] for name in files)
    return kinds, set(children(os.getpid())), {thread.name for thread in threading.enumerate()}


@contextmanager
def nothing_left():
    gc.collect()
    before = held()
    yield
    gc.collect()
    assert held() == before


def test_closing_leaves_nothing(folder):
    config = config_for(folder)
    with Engine(config, builder=BUILDER):
        pass  # what is imported and cached once
    with nothing_left():
        for _ in range(3):
            with Engine(config, builder=BUILDER) as engine:
                engine.generate("a", max_tokens=1)
                stream = engine.generate("a", max_tokens=200, stream=True)
                next(stream)
        engine.close()
        with pytest.raises(EngineClosed):
            list(stream)


def test_a_start_that_fails_leaves_nothing(folder, tmp_path):
    bad = [
        (config_for(folder, chip_option={"start_error": "no card"}), "no card"),
        (config_for(folder, chip_option={"crash_in_start": "1"}), "SIGKILL"),
        (config_for(tmp_path), "tokenizer"),
        (config_for(folder, chat_template=str(tmp_path / "none")), "--chat-template"),
    ]
    with nothing_left():
        for config, text in bad:
            with pytest.raises(StartError, match=text):
                Engine(config, builder=BUILDER)


def test_an_engine_that_is_collected_is_closed(folder):
    with nothing_left():
        engine = Engine(config_for(folder), builder=BUILDER)
        stream = engine.generate("a", max_tokens=3, stream=True)
        del engine
        assert "".join(part.text for part in stream) == "bcd"  # the stream holds its engine
        del stream


PROGRAM = """
import os, sys, time
from anychip import Engine
from served import config_for
from pathlib import Path

options = dict(word.split("=") for word in sys.argv[2:])
engine = Engine(config_for(Path(sys.argv[1]), chip_option=options), builder="scripted_engine:build")
stream = engine.generate("a", max_tokens=240, stream=True)
next(stream)
print("ready", flush=True)
"""
WAYS = {
    "end": "",
    "error": "1 / 0",
    "hard exit": "os._exit(0)",
    "a call in a thread": (
        "import threading\n"
        "threading.Thread(target=lambda: print(engine.generate('0', max_tokens=3).text)).start()"
    ),
    "a fork that ends first": "\n".join(
        [
            "pid = os.fork()",
            "if pid == 0: sys.exit(0)",
            "os.waitpid(pid, 0)",
            "print(engine.generate('0', max_tokens=3).text)",
        ]
    ),
}


@contextmanager
def program(folder: Path, end: str, *options: str):
    """A program that uses an Engine; yields it with the processes that it has started."""
    words = [sys.executable, "-W", "error", "-c", PROGRAM + end, str(folder), "step_s=0.02"]
    with subprocess.Popen(
        [*words, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_the_program_ends_all(folder, way):
    hold = "sys.stdin.readline()\n"
    with program(folder, hold + WAYS[way]) as process:
        assert process.stdout.readline() == "ready\n"
        mine = children(process.pid)
        assert len(mine) == 2  # the engine, and the renderer of chat templates
        said, complaint = process.communicate("go\n", timeout=30)
    wait_until(lambda: not any(alive(child) for child in mine))
    assert process.returncode == (way == "error")
    assert said == ("123\n" if way.startswith("a ") else "")
    assert ("ZeroDivisionError" if way == "error" else "") in complaint
    assert way == "error" or complaint == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_to_the_program_ends_all(folder, number):
    with program(folder, "for part in stream: pass\ntime.sleep(60)") as process:
        assert process.stdout.readline() == "ready\n"
        mine = children(process.pid)
        assert len(mine) == 2
        process.send_signal(number)
        _, complaint = process.communicate(timeout=30)
    wait_until(lambda: not any(alive(child) for child in mine))
    assert process.returncode == -number
    assert complaint == "" or number == signal.SIGINT
    assert "Exception ignored" not in complaint


def test_ctrl_c_while_it_starts_ends_all(folder):
    with program(folder, "", "start_s=60") as process:
        wait_until(lambda: len(children(process.pid)) == 2)
        mine = children(process.pid)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    wait_until(lambda: not any(alive(child) for child in mine))
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in complaint


def test_a_fork_cannot_use_it(engine):
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where threads run
        pid = os.fork()
    if pid == 0:
        try:
            engine.generate("a")
        except EngineClosed as error:
            os.write(writing, str(error).encode())
        engine.close()
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert f"this is its fork {pid}" in told.read()
    assert engine.generate("a", max_tokens=1).text == "b"
