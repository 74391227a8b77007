"""Compiles grammars that nobody vouches for: `python -m anychip.grammar.check_process`.

Where a compile takes too long or too much memory the kernel ends this process, and nothing else of
the server is disturbed. The parent is check.py; what the two say is in check_frames.py.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import msgspec
import numpy as np

from anychip.grammar.backend import Matcher, open_backend
from anychip.grammar.check_frames import CheckReply, CheckSetup
from anychip.grammar.errors import GrammarError
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec
from anychip.text.frames import read_frame, write_frame


class Checker:
    """Answers one grammar after the other."""

    def __init__(self, setup: CheckSetup) -> None:
        self._limits = setup.limits
        self._vocabulary = Vocabulary(setup.pieces, setup.special, setup.eos_ids, setup.size)
        self._backend = open_backend(setup.backend, self._vocabulary, setup.limits)
        self._words = np.zeros(self._vocabulary.words, np.int32)

    def answer(self, spec: GrammarSpec) -> CheckReply:
        """What is wrong with `spec`."""
        try:
            self._check(spec)
        except GrammarError as error:
            return CheckReply(error.text, error.pointer)
        except MemoryError:
            most = self._limits.compile_bytes >> 20
            return CheckReply(f"the grammar needs more than {most} MiB to compile; make it simpler")
        except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
            return CheckReply(f"the grammar cannot be compiled: {type(error).__name__}")
        return CheckReply()

    def _check(self, spec: GrammarSpec) -> None:
        try:
            self._follow(self._backend.grammar(self._backend.source(spec)).matcher())
        except GrammarError as error:
            if error.pointer:
                raise
            raise GrammarError(error.text, self._backend.complaint(spec)) from error

    def _follow(self, matcher: Matcher) -> None:
        """Go on by tokens from the middle of each mask."""
        for _ in range(self._backend.tried_tokens):
            matcher.fill(self._words)
            if matcher.finished:
                break
            allowed = np.flatnonzero(np.unpackbits(self._words.view(np.uint8), bitorder="little"))
            token = int(allowed[len(allowed) // 2])
            if not matcher.accept(token):
                raise GrammarError(f"token {token} breaks the grammar, though its mask allows it")


def main() -> None:
    """Limit this process, then serve standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the alarm ends the process, whatever it runs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    first = read_frame(source)
    if first is None:
        return
    setup = msgspec.msgpack.decode(first, type=CheckSetup)
    checker = Checker(setup)
    memory = _size() + setup.limits.compile_bytes
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        while (frame := read_frame(source)) is not None:
            signal.setitimer(signal.ITIMER_REAL, setup.limits.compile_s)
            reply = checker.answer(msgspec.msgpack.decode(frame, type=GrammarSpec))
            signal.setitimer(signal.ITIMER_REAL, 0)
            write_frame(sink, msgspec.msgpack.encode(reply))
    except BrokenPipeError:
        os._exit(0)  # the parent has ended; a flush of what it did not take would fail again


def _size() -> int:
    """Address space of this process, in bytes; 0 where it cannot be told."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
