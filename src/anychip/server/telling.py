"""What is told of calls besides their answers: the access log and the traces, opened together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from anychip.config import ServeConfig
from anychip.server.access_log import AccessLog, open_access_log
from anychip.server.tracing import Tracing, open_tracing


@dataclass(frozen=True)
class Telling:
    """Each is None where nobody asked for it."""

    access_log: AccessLog | None = None
    tracing: Tracing | None = None

    async def close(self, hurry: asyncio.Event) -> None:
        """Send and close what is left. hurry: set where nobody wants to wait for that."""
        if self.tracing is not None:
            await self.tracing.close(hurry)
        if self.access_log is not None:
            self.access_log.close()


def open_telling(config: ServeConfig) -> Telling:
    """What the configuration asks for. StartError for a file that cannot be written, or a library
    that is not installed."""
    access_log = open_access_log(config)
    try:
        return Telling(access_log, open_tracing(config))
    except BaseException:
        if access_log is not None:
            access_log.close()
        raise
