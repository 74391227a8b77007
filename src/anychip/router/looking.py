"""A look at a worker: whether it takes calls, and what it tells of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from anychip.http.relay import BadGateway, BrokenOff, Headers, Passed, Relay

from .worker import Facts

MOST_BYTES = 8 << 20
"""Of an answer about the worker itself."""
MOST_LETTERS = 64
"""Of a name in it that is passed on."""


class Unwell(Exception):
    """Nobody answers, or nothing that can be understood; the text says what."""


class NotReady(Exception):
    """The worker says so; the text is its reason."""


async def look(relay: Relay, base: str, headers: Headers, limit_s: float) -> Facts:
    """What the worker tells. Raises Unwell, NotReady.

    Any OpenAI-compatible server will do: what it does not have of /ready, /health and /server_info
    is not held against it.
    """
    try:
        return await asyncio.wait_for(_look(relay, base, headers), limit_s)
    except asyncio.TimeoutError as error:
        raise Unwell(f"{base}: no answer within {limit_s:g} s") from error


async def _look(relay: Relay, base: str, headers: Headers) -> Facts:
    status, body = await short_answer(relay, Passed("GET", base, "/ready", headers, b""))
    if status in (404, 405):
        status, body = await short_answer(relay, Passed("GET", base, "/health", headers, b""))
    if status == 503:
        raise NotReady(error_text(object_in(body)) or "it says 503")
    if status not in (200, 204, 404, 405):
        raise Unwell(f"{base}/ready: it says {status}: {error_text(object_in(body))}")
    cards = await _models(relay, base, headers)
    status, body = await short_answer(relay, Passed("GET", base, "/server_info", headers, b""))
    return _facts(cards, object_in(body) if status == 200 else {})


async def short_answer(relay: Relay, asked: Passed) -> tuple[int, bytes]:
    """Status and body of a short answer. Raises Unwell."""
    try:
        async with relay.ask(asked) as answer:
            found = bytearray()
            async for piece in answer.pieces():
                found += piece
                if len(found) > MOST_BYTES:
                    where = asked.base + asked.target
                    raise Unwell(f"{where}: the answer is longer than {MOST_BYTES:,} bytes")
            return answer.status, bytes(found)
    except (BadGateway, BrokenOff) as error:
        raise Unwell(str(error)) from error


async def _models(relay: Relay, base: str, headers: Headers) -> dict[str, dict[str, Any]]:
    status, body = await short_answer(relay, Passed("GET", base, "/v1/models", headers, b""))
    if status in (401, 403):
        raise Unwell(
            f"{base}/v1/models: it says {status}; --worker-api-key-file has the key for it"
        )
    data = object_in(body).get("data")
    if status != 200 or not isinstance(data, list):
        raise Unwell(f"{base}/v1/models: it says {status}, and lists no models")
    found = {}
    for card in data:
        if isinstance(card, dict) and isinstance(card.get("id"), str):
            found[card["id"]] = card
    if not found:
        raise Unwell(f"{base}/v1/models: it has no model")
    return found


def _facts(cards: dict[str, dict[str, Any]], told: dict[str, Any]) -> Facts:
    """Of a server of ours, and of SGLang's, which tells some of it in other words."""
    engine, pids, server = told.get("engine"), told.get("pids"), _word(told.get("instance_id"))
    if not isinstance(engine, dict):
        window = _count(told.get("max_running_requests"))
        return Facts(cards, window=window, instance=server, server=server)
    pages, size = _count(engine.get("pages")), _count(engine.get("page_size"))
    return Facts(
        cards,
        chip=_word(engine.get("backend")),
        window=_count(engine.get("max_running")),
        cache_tokens=pages * size if pages and size else None,
        instance=f"{server} {sorted(pids.items())}" if isinstance(pids, dict) else server,
        server=server,
    )


def _word(value: object) -> str | None:
    """A name that may stand in a label or a log line."""
    fits = isinstance(value, str) and 0 < len(value) <= MOST_LETTERS and value.isprintable()
    return value if fits and isinstance(value, str) else None


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and value > 0 else None


def object_in(body: bytes) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def error_text(body: dict[str, Any]) -> str:
    """The text of an error in OpenAI's form; empty for any other."""
    error = body.get("error")
    text = error.get("message") if isinstance(error, dict) else None
    return text if isinstance(text, str) else ""
