"""What the router tells of itself and its workers: models, state, health, metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from anychip import __version__
from anychip.flags import settings_of
from anychip.http.errors import ApiError, unavailable
from anychip.http.stream import json_response

from .desk import Desk
from .picking import RETRY_S
from .worker import Worker


def _desk(request: Request) -> Desk:
    found: Desk = request.app.state.desk
    return found


async def health(request: Request) -> Response:
    """Liveness: 200 while this loop runs."""
    return json_response({"status": "ok"})


async def ready(request: Request) -> Response:
    """Readiness: 200 where at least one worker is ready, else 503 with the reasons."""
    desk = _desk(request)
    desk.check_open(request)
    names = [worker.name for worker in desk.fleet.ready()]
    if not names:
        text = f"no worker is ready: {desk.fleet.reasons()}"
        raise unavailable(text, "no_worker_ready", RETRY_S)
    return json_response({"status": "ready", "workers": names})


def _cards(desk: Desk) -> dict[str, dict[str, Any]]:
    """Models of all workers that are ready, each as its first worker describes it."""
    found: dict[str, dict[str, Any]] = {}
    for worker in desk.fleet.ready():
        for name, card in worker.facts.models.items():
            told = found.setdefault(name, {**card, "workers": []})
            told["workers"].append(worker.name)
    return found


async def models(request: Request) -> Response:
    """The union of the workers' models."""
    return json_response({"object": "list", "data": list(_cards(_desk(request)).values())})


async def model(request: Request) -> Response:
    """One of them; 404 for another."""
    cards, name = _cards(_desk(request)), str(request.path_params["name"])
    if name not in cards:
        known = ", ".join(map(repr, cards)) or "none"
        text = f"the model {name!r} does not exist; the workers have {known}"
        raise ApiError(404, text, param="model", code="model_not_found")
    return json_response(cards[name])


def told_of(desk: Desk, worker: Worker) -> dict[str, Any]:
    """A worker as /workers tells it."""
    load, facts = desk.fleet.book.of(worker.name), worker.facts
    return {
        "name": worker.name,
        "url": worker.place.url,
        "state": worker.state,
        "reason": worker.reason or None,
        "calls": load.calls,
        "prompt_tokens": load.tokens,
        "window": facts.window,
        "cache_tokens": facts.cache_tokens,
        "chip": facts.chip,
        "models": list(facts.models),
        "tags": list(worker.place.tags),
        "weight": worker.place.weight,
    }


async def workers(request: Request) -> Response:
    """Every worker: state and reason, load, and what it told of itself."""
    desk = _desk(request)
    return json_response(
        {"workers": [told_of(desk, worker) for worker in desk.fleet.workers.values()]}
    )


async def server_info(request: Request) -> Response:
    """Configuration without its secrets, and the workers."""
    desk = _desk(request)
    config = dataclasses.asdict(desk.config)
    for setting in settings_of(type(desk.config)):
        if setting.flag.secret and config[setting.field] is not None:
            config[setting.field] = "(set)"
    return json_response(
        {
            "version": __version__,
            "router": True,
            "instance_id": desk.id,
            "config": config,
            "state": "draining" if desk.draining else "ready",
            "live_requests": len(desk.live),
            "workers": [told_of(desk, worker) for worker in desk.fleet.workers.values()],
        }
    )


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    text = _desk(request).hub.metrics.exposition()
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
