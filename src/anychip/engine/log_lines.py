"""Lines of the log as JSON objects, and the facts that a line has beside its words."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from anychip.contract.errors import ChipError

PLAIN = "%(asctime)s %(levelname)-8s %(name)s: %(message)s"

FACTS = "facts"
"""Attribute of a record that brings its facts from another process."""


def facts_of(record: logging.LogRecord) -> dict[str, str]:
    """The layer and kind of a chip's error that a record tells of; empty where it does not."""
    given: Mapping[str, str] | None = getattr(record, FACTS, None)
    if given is not None:
        return dict(given)
    told = record.args if isinstance(record.args, tuple) else ()
    raised = record.exc_info[1] if record.exc_info else None
    error = next((one for one in (*told, raised) if isinstance(one, ChipError)), None)
    if error is None:
        return {"error_kind": type(raised).__name__} if raised is not None else {}
    return {"error_layer": error.fact.layer.value, "error_kind": error.fact.kind.value}


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and what else is known.

    request_id: of the call that the line was written for, where there is one.
    """

    def __init__(self, request_id: Callable[[], str | None] = lambda: None) -> None:
        super().__init__()
        self._request_id = request_id

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            "time": f"{_utc(record.created)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        name = self._request_id()
        if name is not None:
            line["request_id"] = name
        line |= facts_of(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
