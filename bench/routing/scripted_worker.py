"""A worker for bench/router_cost.py: answers completions at once, with tokens that cost nothing.

python bench/routing/scripted_worker.py PORT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from starlette.requests import Request

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MODELS = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
EVENT = {"id": "cmpl-1", "object": "text_completion", "model": "scripted"}
CHUNK = json.dumps(EVENT | {"choices": [{"index": 0, "text": " token", "finish_reason": None}]})
PIECE = f"data: {CHUNK}\n\n".encode()


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Models, health, and completions of max_tokens pieces."""
    if scope["type"] != "http":
        return
    body = await Request(scope, receive).body()
    if scope["path"] == "/v1/models":
        await _answer(send, MODELS)
    elif scope["path"] == "/health":
        await _answer(send, {"status": "ok"})
    elif scope["path"] == "/v1/completions":
        await _complete(send, json.loads(body))
    else:
        await _answer(send, {"error": {"message": "not here"}}, 404)


async def _complete(send: Send, asked: dict[str, Any]) -> None:
    tokens = asked.get("max_tokens", 1)
    if not asked.get("stream"):
        choices = [{"index": 0, "text": " token" * tokens, "finish_reason": "length"}]
        await _answer(send, EVENT | {"choices": choices})
        return
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(tokens):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _answer(send: Send, told: dict[str, Any], status: int = 200) -> None:
    body = json.dumps(told).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", loop="uvloop")
