"""Checks in a process of their own: one that dies or hangs costs that check alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from anychip.config import ServeConfig
from anychip.conform.messages import (
    Answer,
    AskChecks,
    AskFingerprint,
    AskProof,
    Broken,
    Checks,
    Fingerprint,
    Proved,
    Question,
    Refused,
    Start,
)
from anychip.conform.proof import Level, Proof
from anychip.conform.result import CannotList, Listed, ProcessLost
from anychip.engine.child import describe_exit
from anychip.engine.connection import Connection, PeerGone
from anychip.flags import ConfigError
from anychip.run.fingerprint import fingerprint_unopened

# Our own import path goes along, so that the child finds the chips that we found.
# Ctrl-C ends it without a word until `main` is reached.
_START = (
    "import signal, sys; fd, parent, *sys.path = sys.argv[1:]; "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "from anychip.conform.process import main; sys.exit(main(int(fd), int(parent)))"
)
KIT = "anychip.conform.kit:LEVELS"
START_S = 300.0
"""The longest that importing a chip, opening it and listing a level may take: it may compile."""

_POLL_S = 0.2
_CLOSE_S, _INTERRUPT_S = 10.0, 2.0

_WHEN: Mapping[type[Question | Start], str] = {
    Start: "while the chip was imported",
    AskFingerprint: "while the chip was opened",
    AskChecks: "while the checks were listed",
    AskProof: "during this check",
}

A = TypeVar("A")


class Isolated:
    """Runs checks in a child process, and in a new one behind a check that took it down.

    timeout_s: the longest that a check may take. levels: where the child finds the checks.
    Use it as a context manager.
    """

    def __init__(self, config: ServeConfig, timeout_s: float, levels: str = KIT) -> None:
        self._start, self._timeout_s = Start(config, levels), timeout_s
        self._child: _Child | None = None

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._end(_CLOSE_S if kind is None else 0.0)

    def fingerprint(self) -> dict[str, Any]:
        """Of the opened chip; where it does not open, what is known without it, and why.

        Raises ConfigError where the user asks for what is not there.
        """
        try:
            return self._ask(AskFingerprint(), Fingerprint, START_S).record
        except ProcessLost as error:
            config = self._start.config
            record = fingerprint_unopened(config.backend, config.device_index, config.chip_option)
            return record | {"not opened": str(error)}

    def checks(self, level: Level) -> Sequence[Listed]:
        """The checks of a level. Raises CannotList, ConfigError."""
        try:
            answer = self._ask(AskChecks(level), Checks, START_S)
        except ProcessLost as error:
            raise CannotList(str(error)) from error
        if answer.error:
            raise CannotList(answer.error)
        return answer.checks

    def prove(self, check: Listed) -> Proof:
        """Run a check. Raises ProcessLost where its process dies or passes its time."""
        return self._ask(AskProof(check), Proved, self._timeout_s).proof

    def _ask(self, question: Question, kind: type[A], limit_s: float) -> A:
        if self._child is None:
            self._child = self._begin()
        try:
            answer = self._child.ask(question, limit_s)
        except BaseException:  # an interrupt too: a process that is at work closes nothing
            self._end(0.0)
            raise
        if not isinstance(answer, kind):
            raise TypeError(f"{question} was answered with {answer}")
        return answer

    def _begin(self) -> _Child:
        """A child that has imported the chip. Raises ProcessLost, ConfigError."""
        child = _Child()
        try:
            answer = child.ask(self._start, START_S)
            if isinstance(answer, Refused):
                raise ConfigError(answer.text)
            if isinstance(answer, Broken):
                raise ProcessLost(answer.text)
        except BaseException:
            child.end(0.0)
            raise
        return child

    def _end(self, patience_s: float) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end(patience_s)


class _Child:
    """One run of the process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid()), *sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is the kit's to answer
            )
        self._connection = Connection(ours)
        self._decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)

    def ask(self, question: Question | Start, timeout_s: float) -> Answer:
        """The answer. Raises ProcessLost; the text says how the process was lost, and when."""
        when = _WHEN[type(question)]
        try:
            self._connection.send(question)
            frame = self._receive(timeout_s)
        except PeerGone:
            raise ProcessLost(f"the process {self._obituary()} {when}") from None
        if frame is None:
            raise ProcessLost(f"no result within {timeout_s:g} s {when}: its process was ended")
        return self._decoder.decode(frame)

    def _receive(self, timeout_s: float) -> bytes | None:
        """A dead process is noticed also where something that it started holds its socket."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            ended = self._process.poll() is not None
            frames = self._connection.receive(min(left, _POLL_S))
            if frames:
                return frames[0]
            if ended:
                raise PeerGone("the process has ended")
        return None

    def _obituary(self) -> str:
        try:
            code = self._process.wait(_INTERRUPT_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code < 0:
            return f"died of {describe_exit(code).removeprefix('killed by ')}"
        return f"ended with {describe_exit(code)}"

    def end(self, patience_s: float) -> None:
        """End the process and what it started.

        patience_s: how long an idle process may take to close the chip. Then it is interrupted,
        so that a check ends what it started in sessions of its own, then killed.
        """
        self._connection.close()
        self._wait(patience_s)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._wait(_INTERRUPT_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
