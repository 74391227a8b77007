"""A span as data, and what every call's own span says. No tracing library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anychip.http.call_record import CallRecord

Attribute = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Attribute]


class SpanEvent(NamedTuple):
    """A moment within a span, monotonic seconds."""

    name: str
    at: float
    attributes: Attributes


@dataclass
class SpanNode:
    """One span and those inside it; monotonic seconds. error: its type, where it failed."""

    name: str
    begin: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    children: list[SpanNode] = field(default_factory=list)
    error: str | None = None


def call_attributes(record: CallRecord, route: str | None) -> Attributes:
    """Of the call's own span, at its end, whatever it was about."""
    found: dict[str, Attribute | None] = {
        "http.request.method": record.method,
        "url.path": record.path,
        "http.route": route,
        "http.response.status_code": record.status,
        "http.request.body.size": record.bytes_in,
        "http.response.body.size": record.bytes_out,
        "error.type": error_type(record),
        "anychip.call.id": record.request_id,
        "anychip.call.outcome": record.outcome,
    }
    return without_none(found)


def error_type(record: CallRecord) -> str | None:
    """The error's code, or else its kind, or else the status; None where all went well."""
    if record.error is not None:
        return record.error.code or record.error.kind
    if record.status is not None and record.status >= 400:
        return str(record.status)
    return None


def without_none(given: Mapping[str, Attribute | None]) -> Attributes:
    """What is known of them."""
    return {name: value for name, value in given.items() if value is not None}
