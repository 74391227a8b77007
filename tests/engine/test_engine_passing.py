"""Lines that are soon out of date: written over on a terminal, seldom told anywhere else."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from anychip.engine.messages import LogLine
from anychip.engine.passing import LogWriter, Passing


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def written(monkeypatch):
    """What a logger with this handler writes to a stream."""

    def write(stream: io.StringIO, *lines: str) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        logger = logging.Logger("one")
        logger.addHandler(LogWriter())
        for line in lines:
            logger.info(line)
        return stream.getvalue()

    return write


def test_a_terminal_shows_the_last_one_alone(written):
    lines = ("begun", Passing("1 of 3"), Passing("2 of 3"), Passing(), "done")
    assert written(Screen(), *lines) == "begun\n1 of 3\r\x1b[K2 of 3\r\x1b[Kdone\n"


def test_another_line_goes_where_it_stood(written):
    assert written(Screen(), Passing("1 of 3"), "other") == "1 of 3\r\x1b[Kother\n"


def test_it_is_cut_where_it_would_wrap(written, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    assert written(Screen(), Passing("x" * 30)) == "x" * 9


def test_a_file_is_told_now_and_then(written, monkeypatch):
    lines = (Passing("1 of 4"), Passing("2 of 4"), Passing(), "done")
    assert written(io.StringIO(), *lines) == "done\n"
    monkeypatch.setattr("anychip.engine.passing.EVERY_S", 0.0)
    assert written(io.StringIO(), *lines) == "1 of 4\n2 of 4\ndone\n"


def test_a_line_of_an_older_engine_stays():
    assert LogLine(logging.INFO, "x").passing is False
