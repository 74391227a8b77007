"""Liveness, readiness, what is served, and the metrics."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from anychip import __version__
from anychip.engine.supervisor import EngineState
from anychip.flags import settings_of
from anychip.http.errors import unavailable
from anychip.server.openai_protocol import ModelCard, ModelList
from anychip.server.service import Service


class HealthAnswer(msgspec.Struct, frozen=True):
    """heartbeat_age: seconds since the engine was last heard."""

    status: str
    heartbeat_age: float


class ReadyAnswer(msgspec.Struct, frozen=True):
    """model: the name that it is served under."""

    status: str
    model: str


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


async def health(request: Request) -> Response:
    """Liveness, at once: 200 while this loop runs and the engine runs or is being restarted.

    503 once the engine has failed for good, or is silent for longer than the watchdog allows.
    """
    service: Service = request.app.state.service
    client = service.client
    if client.state is EngineState.FAILED:
        raise unavailable(client.reason, "engine_failed")
    age = client.heartbeat_age()
    if client.ready and age > service.config.watchdog_timeout:
        raise unavailable(f"the engine has been silent for {age:.0f} s", "engine_silent")
    return _json(HealthAnswer("ok", age))


async def ready(request: Request) -> Response:
    """Readiness: 200 where a request would be taken now, else 503 with the reason."""
    service: Service = request.app.state.service
    service.check_open()
    return _json(ReadyAnswer("ready", service.model_name))


async def models(request: Request) -> Response:
    """The one model that is served."""
    service: Service = request.app.state.service
    return _json(ModelList(data=[_card(service)]))


async def model(request: Request) -> Response:
    """The model by its name; 404 for another."""
    service: Service = request.app.state.service
    name = str(request.path_params["name"])
    service.check_model(name)
    return _json(_card(service))


def _card(service: Service) -> ModelCard:
    return ModelCard(
        id=service.model_name,
        root=service.config.model_path or service.info.model_name,
        created=service.created,
        max_model_len=service.room.longest,
    )


async def server_info(request: Request) -> Response:
    """Configuration without its secrets, the engine's facts, its last statistics."""
    service: Service = request.app.state.service
    return _json(
        {
            "version": __version__,
            "instance_id": service.instance_id,
            "model": service.model_name,
            "config": _public_config(service),
            "engine": service.info,
            "stats": service.client.stats,
            "state": "draining" if service.draining else service.client.state.value,
            "engine_deaths": service.client.deaths,
            "live_requests": len(service.live),
            "pids": {"server": os.getpid(), "engine": service.client.pid},
            "record": service.recorder.counts,
        }
    )


def _public_config(service: Service) -> dict[str, Any]:
    values = dataclasses.asdict(service.config)
    for setting in settings_of(type(service.config)):
        if setting.flag.secret and values[setting.field] is not None:
            values[setting.field] = "(set)"
    return values


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    service: Service = request.app.state.service
    return Response(service.metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})
