"""`--access-log`: one line a call, refused and broken ones too. Never a key, never a text."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import msgspec

from anychip.engine.messages import StartError
from anychip.http.call_record import CallRecord
from anychip.settings import CallLogSettings, user_path

log = logging.getLogger("anychip.server")

MAX_PATH_CHARS = 256
"""Characters of a path that are shown."""


class AccessLog:
    """Writes the lines. path: None: standard output. as_json: an object a line, otherwise words
    and NAME=VALUE pairs. Raises OSError where the file cannot be opened."""

    def __init__(self, path: Path | None, *, as_json: bool) -> None:
        self._file = None if path is None else _PrivateFile(path)
        self._as_json = as_json
        self._failing = False

    def write(self, record: CallRecord) -> None:
        """One line for a call that is over. A full disk is told once, until it has room again."""
        facts = facts_of(record)
        line = msgspec.json.encode(facts).decode() if self._as_json else _words(facts)
        try:
            stream = sys.stdout if self._file is None else self._file.current()
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: standard output was closed
            if not self._failing:
                log.error("--access-log: lines are lost: %s", error)
            self._failing = True
            if self._file is not None:
                self._file.forget()
        else:
            self._failing = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def facts_of(record: CallRecord) -> dict[str, Any]:
    """What a line tells; None where it is not known or does not apply."""
    found: dict[str, Any] = {
        "time": _utc(record.epoch_ns),
        "status": record.status,
        "method": record.method,
        "path": record.path[:MAX_PATH_CHARS],
        "seconds": _rounded((record.ended or record.started) - record.started),
        "outcome": record.outcome,
        "request_id": record.request_id,
        "caller": record.caller,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "stream": record.stream,
        "error": record.error and (record.error.code or record.error.kind),
        "trace": record.traceparent,
    }
    if record.worker is not None:
        found["worker"] = record.worker
    names = ("model", "id", "prompt_tokens", "cached_tokens", "output_tokens", "ttft", "finish")
    return found | (dict.fromkeys(names) | {"model": record.model} | _answer(record))


def _answer(record: CallRecord) -> dict[str, Any]:
    generation = record.generation
    if generation is None:
        return {}
    usage, first = generation.usage(), generation.first_token
    return {
        "id": generation.rid,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "ttft": None if first is None else _rounded(first - record.started),
        "finish": ",".join(sorted({str(one or "cut short") for one in generation.finishes})),
    }


def _words(facts: dict[str, Any]) -> str:
    """For eyes and for grep: what is not known is left out."""
    first = ("time", "status", "method", "path")
    words = ["-" if facts[name] is None else str(facts[name]) for name in first]
    pairs = [
        f"{name}={_quoted(value)}"
        for name, value in facts.items()
        if name not in first and value is not None
    ]
    return " ".join(words + pairs)


def _quoted(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    plain = text and text.isascii() and not any(c.isspace() or c in '"=' for c in text)
    return text if plain else msgspec.json.encode(text).decode()


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


def _utc(epoch_ns: int) -> str:
    seconds, rest = divmod(epoch_ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 10**6:03d}Z"


def open_access_log(config: CallLogSettings) -> AccessLog | None:
    """What --access-log names; "-" is standard output. StartError where it cannot be written."""
    if config.access_log is None:
        return None
    path = None
    if config.access_log != "-":
        path = user_path(config.access_log, "--access-log")
    try:
        return AccessLog(path, as_json=config.log_format == "json")
    except OSError as error:
        raise StartError(
            f"--access-log: cannot write {path}: {error.strerror}; name a file in a folder that "
            "this user may write to, or - for standard output"
        ) from error


class _PrivateFile(WatchedFileHandler):
    """A file that its user alone reads; opened again where a rotation has moved it away."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_open_private)

    def current(self) -> TextIOWrapper:
        """The file that has the name now. Raises OSError."""
        self.reopenIfNeeded()
        if self.stream is None:
            self.stream = self._open()
        return self.stream

    def forget(self) -> None:
        """Drop what could not be written: kept, it would grow, and fail again at the close."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(OSError):  # it tries once more, and is closed whatever comes of it
                stream.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
