"""The routes of the router, and the layers around them."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from anychip.http.auth import KeyCheck, OriginCheck
from anychip.http.errors import ApiError, on_api_error, on_crash, on_http_error
from anychip.http.limits import CallLimit
from anychip.http.routes import pattern_among
from anychip.http.stream import CutAtTheEnd
from anychip.http.upgrade import PlainHttp

from . import about, admin
from .asking import ROUTED
from .desk import Desk
from .endpoints import about_response, routed
from .openapi import openapi

_GET, _POST = ["GET"], ["POST"]
ROUTES = (
    *(Route(path, routed, methods=_POST) for path in ROUTED),
    Route("/v1/responses/{id:path}/cancel", about_response, methods=_POST),
    Route("/v1/responses/{id:path}", about_response, methods=["GET", "DELETE"]),
    Route("/v1/models", about.models, methods=_GET),
    Route("/v1/models/{name:path}", about.model, methods=_GET),
    Route("/workers", about.workers, methods=_GET),
    Route("/workers", admin.add_worker, methods=_POST),
    Route("/workers/{name:path}", admin.remove_worker, methods=["DELETE"]),
    Route("/flush_cache", admin.flush_cache, methods=_POST),
    Route("/abort_request", admin.abort_request, methods=_POST),
    Route("/health", about.health, methods=_GET),
    Route("/ready", about.ready, methods=_GET),
    Route("/server_info", about.server_info, methods=_GET),
    Route("/metrics", about.metrics, methods=_GET),
    Route("/openapi.json", openapi, methods=_GET),
)

route_of = partial(pattern_among, ROUTES)
"""The pattern of the path that a call was routed by."""


def build_app(desk: Desk) -> Starlette:
    """The ASGI application of a router."""
    config = desk.config
    app = Starlette(
        routes=list(ROUTES),
        middleware=[
            Middleware(CutAtTheEnd, draining=lambda: desk.draining),
            Middleware(OriginCheck, bound_host=config.host),
            Middleware(KeyCheck, access=desk.access),
            Middleware(PlainHttp),
            Middleware(CallLimit, most=config.max_concurrent_requests, retry_after=lambda: 1),
        ],
        exception_handlers={
            ApiError: on_api_error,
            HTTPException: on_http_error,
            Exception: on_crash,
        },
    )
    app.state.desk = desk
    return app
