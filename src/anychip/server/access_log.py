"""`--access-log`: one line a call, refused and broken ones too. Never a key, never a text."""

from __future__ import annotations

import logging
import os
import sys
import time
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import msgspec

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.server.call_record import CallRecord
from anychip.settings import user_path

log = logging.getLogger("anychip.server")

MAX_PATH_CHARS = 256
"""Characters of a path that are shown."""


class AccessLog:
    """Writes the lines. as_json: an object a line, otherwise words and NAME=VALUE pairs."""

    def __init__(self, target: logging.StreamHandler[Any], *, as_json: bool) -> None:
        self._target = target
        self._as_json = as_json

    def write(self, record: CallRecord) -> None:
        """One line for a call that is over."""
        facts = facts_of(record)
        line = msgspec.json.encode(facts).decode() if self._as_json else _words(facts)
        self._target.handle(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Close the file."""
        self._target.close()


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
    names = ("model", "id", "prompt_tokens", "cached_tokens", "output_tokens", "ttft", "finish")
    return found | (dict.fromkeys(names) | _answer(record))


def _answer(record: CallRecord) -> dict[str, Any]:
    generation = record.generation
    if generation is None:
        return {}
    usage, first = generation.usage(), generation.first_token
    return {
        "model": record.model,
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


def open_access_log(config: ServeConfig) -> AccessLog | None:
    """What --access-log names; "-" is standard output. StartError where it cannot be written."""
    if config.access_log is None:
        return None
    as_json = config.log_format == "json"
    if config.access_log == "-":
        return AccessLog(logging.StreamHandler(sys.stdout), as_json=as_json)
    path = user_path(config.access_log, "--access-log")
    try:
        return AccessLog(_PrivateFile(path), as_json=as_json)
    except OSError as error:
        raise StartError(
            f"--access-log: cannot write {path}: {error.strerror}; name a file in a folder that "
            "this user may write to, or - for standard output"
        ) from error


class _PrivateFile(WatchedFileHandler):
    """A file that its user alone reads; opened again where a rotation has moved it away."""

    def __init__(self, path: Path) -> None:
        self._failing = False
        super().__init__(path, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_open_private)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line. A disk that is full is told once, until it has room again."""
        try:
            self.reopenIfNeeded()
            self.stream = self.stream or self._open()
            self.stream.write(record.getMessage() + "\n")
            self.stream.flush()
        except OSError as error:
            if not self._failing:
                log.error("--access-log: lines are lost: %s", error)
            self._failing = True
        else:
            self._failing = False


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
