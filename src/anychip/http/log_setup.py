"""The log of a program that answers HTTP."""

from __future__ import annotations

import logging

from anychip.engine.log_lines import PLAIN, JsonLines
from anychip.engine.passing import LogWriter
from anychip.http.call_record import current_call


def set_up_log(level: str, *, as_json: bool) -> None:
    """Lines on standard error, with the id of the call that they are written for as JSON."""
    writer = LogWriter(for_machines=as_json)
    writer.setFormatter(JsonLines(_request_id) if as_json else logging.Formatter(PLAIN))
    logging.basicConfig(level=level.upper(), handlers=[writer])
    # Its start-up lines repeat ours; with "debug" they are wanted.
    logging.getLogger("uvicorn").setLevel("DEBUG" if level == "debug" else "WARNING")


def _request_id() -> str | None:
    record = current_call()
    return None if record is None else record.request_id
