"""What is told of calls besides their answers: the access log and the traces."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from anychip.http.access_log import AccessLog
from anychip.http.call_record import CallRecord

if TYPE_CHECKING:
    from starlette.datastructures import Headers


class Tracer(Protocol):
    """Makes spans of calls."""

    def begin(self, record: CallRecord, headers: Headers) -> Any:
        """The call's span; the record learns its trace context. headers: of the call."""

    def end(self, record: CallRecord, span: Any, route: str | None) -> None:
        """The call is over."""

    async def close(self, hurry: asyncio.Event) -> None:
        """Send what is left. hurry: set where nobody wants to wait for that."""


@dataclass(frozen=True)
class Telling:
    """Each is None where nobody asked for it."""

    access_log: AccessLog | None = None
    tracing: Tracer | None = None

    async def close(self, hurry: asyncio.Event) -> None:
        """Send and close what is left. hurry: set where nobody wants to wait for that."""
        if self.tracing is not None:
            await self.tracing.close(hurry)
        if self.access_log is not None:
            self.access_log.close()
