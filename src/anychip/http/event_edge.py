"""Event streams are passed on in whole events, so that one that breaks off can still be ended."""

from __future__ import annotations

import re

import msgspec

from anychip.http.errors import ApiError
from anychip.http.stream import event, named_event

MOST_HELD = 1 << 20
"""Bytes of an event that are held until it is whole; a longer one passes in pieces."""
_NUMBER = re.compile(rb'"sequence_number":\s*(\d{1,15})')


class EventEdge:
    """What of a stream may go out by now."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._last = b""
        self._torn = False

    def feed(self, data: bytes) -> bytes:
        """The whole events that are there now; empty where none is."""
        self._held += data
        ends = ((self._held.rfind(mark), len(mark)) for mark in (b"\n\n", b"\r\n\r\n"))
        edge = max((at + length for at, length in ends if at >= 0), default=0)
        if not edge and len(self._held) <= MOST_HELD:
            return b""
        self._torn = not edge
        edge = edge or len(self._held)
        ready = bytes(self._held[:edge])
        del self._held[:edge]
        self._last = ready
        return ready

    def rest(self) -> bytes:
        """What is left at the end of a stream that was not broken off."""
        return bytes(self._held)

    def failed(self, path: str, error: ApiError) -> bytes:
        """The last event of a stream that was, in the words of the dialect. What came of the event
        that it broke off in is left out."""
        torn = b"\n\n" if self._torn else b""
        if path == "/v1/messages":
            return torn + named_event("error", error.anthropic())
        if path.startswith("/v1/responses"):
            numbers = _NUMBER.findall(self._last)
            told = {
                "type": "error",
                "code": error.body.code,
                "message": error.body.message,
                "param": None,
                "sequence_number": int(numbers[-1]) + 1 if numbers else 0,
            }
            return torn + named_event("error", told)
        return torn + event(error.envelope())


def id_in(data: bytes) -> str | None:
    """The id of the answer that its first events, or its whole body, tell."""
    text = data
    if not data.lstrip().startswith(b"{"):
        lines = (line for line in data.splitlines() if line.startswith(b"data:"))
        text = next(lines, b"")[5:]
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    for inner in (found, found.get("response"), found.get("message"), found.get("meta_info")):
        name = inner.get("id") if isinstance(inner, dict) else None
        if isinstance(name, str) and name:
            return name
    return None
