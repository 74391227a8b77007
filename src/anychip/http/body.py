"""The body of a request, read within bounds."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from anychip.http.errors import ApiError, bad_request

BODY_IDLE_S = 30.0
"""How long a request's body may stand still, seconds."""


async def read_body(request: Request, limit: int, idle_s: float = BODY_IDLE_S) -> bytes:
    """The whole body. ApiError 413 where it is longer than `limit` bytes, 408 where nothing more of
    it arrives for `idle_s` seconds.
    """
    told = request.headers.get("content-length", "0")
    if told.isdecimal() and int(told) > limit:
        raise too_large(limit)
    body = bytearray()
    try:
        chunks = request.stream()
        while True:
            chunk = await asyncio.wait_for(anext(chunks, None), idle_s)
            if chunk is None:
                break
            body += chunk
            if len(body) > limit:
                raise too_large(limit)
    except asyncio.TimeoutError as error:
        text = f"nothing more of the body arrived for {idle_s:g} s"
        raise ApiError(408, text, code="body_timeout") from error
    except ClientDisconnect as error:
        raise bad_request("the request ended before its body was complete") from error
    return bytes(body)


def too_large(limit: int) -> ApiError:
    """413 with the limit."""
    text = f"the request body is longer than {limit:,} bytes (--max-request-bytes)"
    return ApiError(413, text, code="request_too_large")
