"""The routes, and the layers around them."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from anychip.http.auth import KeyCheck, OriginCheck
from anychip.http.errors import ApiError, on_api_error, on_crash, on_http_error
from anychip.http.http_calls import HttpCount
from anychip.http.limits import CallLimit
from anychip.http.routes import pattern_among
from anychip.http.stream import CutAtTheEnd
from anychip.http.upgrade import PlainHttp
from anychip.server import health, native
from anychip.server.messages import count_tokens, create_message
from anychip.server.openai_chat import chat_completions
from anychip.server.openai_completions import completions
from anychip.server.openapi import openapi
from anychip.server.profile import start_profile, stop_profile
from anychip.server.responses import (
    cancel_response,
    create_response,
    delete_response,
    get_response,
)
from anychip.server.responses_store import ResponseStore
from anychip.server.service import Service
from anychip.server.stacks import StacksWatch, stacks

_GET, _POST = ["GET"], ["POST"]

ROUTES = (
    Route("/v1/chat/completions", chat_completions, methods=_POST),
    Route("/v1/completions", completions, methods=_POST),
    Route("/v1/messages", create_message, methods=_POST),
    Route("/v1/messages/count_tokens", count_tokens, methods=_POST),
    Route("/v1/responses", create_response, methods=_POST),
    Route("/v1/responses/{id:path}/cancel", cancel_response, methods=_POST),
    Route("/v1/responses/{id:path}", get_response, methods=_GET),
    Route("/v1/responses/{id:path}", delete_response, methods=["DELETE"]),
    Route("/v1/models", health.models, methods=_GET),
    Route("/v1/models/{name:path}", health.model, methods=_GET),
    Route("/v1/tokenize", native.tokenize, methods=_POST),
    Route("/v1/detokenize", native.detokenize, methods=_POST),
    Route("/generate", native.generate, methods=["POST", "PUT"]),
    Route("/tokenize", native.tokenize, methods=_POST),
    Route("/detokenize", native.detokenize, methods=_POST),
    Route("/flush_cache", native.flush_cache, methods=_POST),
    Route("/abort_request", native.abort_request, methods=_POST),
    Route("/start_profile", start_profile, methods=_POST),
    Route("/stop_profile", stop_profile, methods=_POST),
    Route("/health", health.health, methods=_GET),
    Route("/ready", health.ready, methods=_GET),
    Route("/server_info", health.server_info, methods=_GET),
    Route("/debug/stacks", stacks, methods=_GET),
    Route("/openapi.json", openapi, methods=_GET),
    Route("/metrics", health.metrics, methods=_GET),
)

route_of = partial(pattern_among, ROUTES)
"""The pattern of the path that a call was routed by."""


def build_app(service: Service) -> Starlette:
    """The ASGI application of a service."""
    config = service.config

    def retry_after() -> int:
        return service.retry_after

    app = Starlette(
        routes=list(ROUTES),
        middleware=[
            Middleware(HttpCount, figures=service.metrics.http, routes=ROUTES),
            Middleware(CutAtTheEnd, draining=lambda: service.draining),
            Middleware(OriginCheck, bound_host=config.host),
            Middleware(KeyCheck, access=service.access),
            Middleware(PlainHttp),
            Middleware(CallLimit, most=config.max_concurrent_requests, retry_after=retry_after),
        ],
        exception_handlers={
            ApiError: on_api_error,
            HTTPException: on_http_error,
            Exception: on_crash,
        },
    )
    app.state.service = service
    app.state.stacks = StacksWatch(service)
    app.state.responses = ResponseStore(
        config.max_stored_responses, config.max_stored_response_bytes
    )
    return app
