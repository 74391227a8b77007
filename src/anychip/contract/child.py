"""Run one function in a fresh Python, bounded: a vendor library that hangs or dies stays there.

Used to list chips without importing any, and by chips for `check_device`. The child sees the
same import path; JSON goes in and comes back; what a library prints goes to its standard error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from importlib import import_module
from typing import Any

MOST_WORDS = 500
"""Characters that are told of a child's standard error."""


class ChildFailed(RuntimeError):
    """The child passed its time, died or raised; the text says which."""


def run_in_child(function: str, argument: Any, timeout: float) -> Any:
    """The result of `module:function` called with `argument` (both JSON values).

    timeout: seconds, the start of Python included. Raises ChildFailed.
    """
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from anychip.contract.child import answer; answer({function!r})"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(json.dumps(argument), timeout=timeout)
    except BaseException as error:
        _end(child)
        if isinstance(error, subprocess.TimeoutExpired):
            raise ChildFailed(f"no answer within {timeout:g} s") from error
        raise
    if child.returncode != 0:
        raise ChildFailed(_why(child.returncode, err))
    try:
        return json.loads(out)
    except ValueError as error:
        raise ChildFailed("it ended without an answer") from error


def _end(child: subprocess.Popen[str]) -> None:
    """Kill the child and whatever it started; something it started may hold its pipes open."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _why(status: int, err: str) -> str:
    """Its last words too: a library that ends its process says there what is wrong."""
    words = _last_words(err)
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}: {words}" if words else f"killed by {name}"
    return f"exit status {status}: {words or 'nothing on standard error'}"


def _last_words(err: str) -> str:
    """The last line, with those before it to which it is indented; as one line."""
    said: list[str] = []
    for line in reversed(err.rstrip().splitlines()):
        said.append(line.strip())
        if not line[:1].isspace():
            break
    return textwrap.shorten(" ".join(reversed(said)), MOST_WORDS, placeholder=" ...")


def answer(function: str) -> None:
    """The child's side: argument from standard input, result to the real standard output."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        module, _, name = function.partition(":")
        result = getattr(import_module(module), name)(json.load(sys.stdin))
        json.dump(result, out)
