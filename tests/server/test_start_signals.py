"""Ctrl-C and SIGTERM while a server starts: one line, exit code 0, no child, at every moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from anychip.signals import answered
from served import COMMAND, ENVIRONMENT, alive, children, server_process, wait_until

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@contextmanager
def started(*words: str, **options):
    """A process with a group of its own, as a shell starts it, so that it can get a Ctrl-C."""
    options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True, **options}
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen) -> tuple[int, list[str]]:
    """Exit code, and what was said that the import times are not."""
    said = process.communicate(timeout=30)[1].splitlines()
    return process.returncode, [line for line in said if not line.startswith("import time:")]


# The first is what is imported once signals are answered and before the engine's process is there,
# the last before it is told what to do.
@BOTH
@pytest.mark.parametrize("imported", ["anychip.engine", "argparse", "anychip.config", "uvloop"])
@pytest.mark.parametrize("module", [("anychip", "serve"), ("anychip.launch_server",)])
def test_signal_in_the_imports_is_one_line(folder, module, imported, number) -> None:
    words = ["-X", "importtime", "-m", *module, "--model-path", str(folder), "--port", "0"]
    with started(sys.executable, *words, env={**os.environ, **ENVIRONMENT}) as process:
        for line in process.stderr:
            if line.split("|")[-1].strip() == imported:
                break
        mine = children(process.pid)
        os.killpg(process.pid, number)
        code, said = ended(process)
    assert code == 0
    (line,) = said
    assert "while starting" in line
    wait_until(lambda: not any(alive(child) for child in mine))


def loading(folder, **options: str):
    """A server whose engine takes its time to start."""
    flags = [f"--chip-option={n}={v}" for n, v in {"start_s": "60", **options}.items()]
    return started(*COMMAND, str(folder), "--port", "0", *flags, env=ENVIRONMENT)


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_ctrl_c_beside_engine_and_renderer_is_one_line(folder, pause_s) -> None:
    """Both are processes that import something themselves then."""
    with loading(folder) as process:
        wait_until(lambda: len(children(process.pid)) == 2)
        mine = children(process.pid)
        time.sleep(pause_s)
        os.killpg(process.pid, signal.SIGINT)
        code, said = ended(process)
        assert code == 0
        (line,) = said
        assert line.endswith("stopped while starting")
        wait_until(lambda: not any(alive(child) for child in mine))


def test_what_the_engine_has_started_ends_with_it(folder, tmp_path) -> None:
    """On the first start that is a compiler."""
    note = tmp_path / "pid"
    with loading(folder, compiler=str(note)) as process:
        wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
        compiler = int(note.read_text())
        assert alive(compiler)
        process.terminate()
        assert ended(process)[0] == 0
        wait_until(lambda: not alive(compiler))


@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.05])
def test_impatient_ctrl_c_ends_with_the_same_code(folder, pause_s) -> None:
    with loading(folder) as process:
        wait_until(lambda: len(children(process.pid)) == 2)
        while process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(pause_s)
        code, said = ended(process)
    assert code == 0
    assert not [line for line in said if "Error" in line or "Interrupt" in line]


def test_impatient_ctrl_c_of_a_running_server_ends_with_the_same_code(folder) -> None:
    with server_process(folder) as (process, _):
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.002)
        assert process.returncode == 0
        assert "Traceback" not in process.stderr.read()


def run(code: str) -> subprocess.CompletedProcess[str]:
    head = "import os, signal, sys, time; from anychip.signals import *; take_signals()\n"
    words = [sys.executable, "-c", head + code]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)


@BOTH
def test_what_a_fetch_has_begun_is_cleared_away_first(number) -> None:
    done = run(f"""
with answered() as ending, ending.unwinding():
    try:
        os.kill(os.getpid(), {number})
        time.sleep(20)
    finally:
        os.kill(os.getpid(), {number})  # again, while it is cleared away
        print("cleared away", flush=True)
print("went on", flush=True)
""")
    name = signal.Signals(number).name
    assert (done.returncode, done.stdout) == (0, "cleared away\n")
    assert done.stderr == f"anychip: stopped by {name} while starting\n"


def test_interrupt_that_a_callback_swallows_ends_the_process_all_the_same() -> None:
    done = run("""
with answered() as ending, ending.unwinding():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
    except KeyboardInterrupt:
        pass
print("went on", flush=True)
""")
    assert (done.returncode, done.stdout) == (0, "")


@BOTH
def test_end_of_python_keeps_its_exit_code(number) -> None:
    assert run(f"let_go(); os.kill(os.getpid(), {number}); sys.exit(3)").returncode == 3


def test_process_of_another_owner_gets_its_handlers_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), answered():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
