"""Standard output that takes nothing: one line or none, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anychip.__main__ import main

COMMANDS = [["--version"], ["--help"], ["chips"], ["chips", "--json"]]


def run_into(output: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anychip", *words],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_reader_that_left_is_no_error_to_speak_of(words):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run_into(writing, *words)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_told_in_one_line(words):
    with open("/dev/full", "w") as full:
        ended = run_into(full.fileno(), *words)
    assert ended.returncode == 1
    assert ended.stderr == (
        "anychip: error: cannot write to standard output: No space left on device\n"
    )


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_files_that_are_closed_change_no_verdict(closed):
    words = [sys.executable, "-m", "anychip", "conform", "--backend", "fake", "--only", "P1"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *words]
    assert subprocess.run(shell, timeout=60, check=False, capture_output=True).returncode == 0


def test_serve_tells_a_missing_home_before_anything_starts(monkeypatch, capsys):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert main(["serve", "--model-path", "/m.gguf"]) == 2
    assert "--cache-dir" in capsys.readouterr().err
