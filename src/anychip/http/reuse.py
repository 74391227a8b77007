"""Connections that were used before: a server may close one just as the next request goes out.

Such a request was not taken by anybody, so it is sent again; over a new connection it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp


class Attempt:
    """One sending of a request. reused: over a connection that was used before; answered: the head
    of an answer came."""

    def __init__(self) -> None:
        self.reused = self.answered = False

    @property
    def is_worth_another(self) -> bool:
        """Whether an error may be that of the connection alone."""
        return self.reused and not self.answered


def noting_reuse(library: Any) -> aiohttp.TraceConfig:
    """What a session notes in the `Attempt` that a request gives as `trace_request_ctx`."""

    async def reused(session: object, context: Any, params: object) -> None:
        attempt = context.trace_request_ctx
        if isinstance(attempt, Attempt):
            attempt.reused = True

    config: aiohttp.TraceConfig = library.TraceConfig()
    config.on_connection_reuseconn.append(reused)
    return config
