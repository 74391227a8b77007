"""The access log and the traces of a server, opened together."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.config import ServeConfig
from anychip.http.access_log import open_access_log
from anychip.http.telling import Telling
from anychip.server.tracing import Tracing, open_tracing


@dataclass(frozen=True)
class ServerTelling(Telling):
    """With traces that take in what the engine tells."""

    tracing: Tracing | None = None


def open_telling(config: ServeConfig) -> ServerTelling:
    """What the configuration asks for. StartError for a file that cannot be written, or a library
    that is not installed."""
    access_log = open_access_log(config)
    try:
        return ServerTelling(access_log, open_tracing(config))
    except BaseException:
        if access_log is not None:
            access_log.close()
        raise
