"""What changes something: workers that come and go, caches emptied, calls ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.flags import ConfigError
from anychip.http.auth import caller_of, require_admin
from anychip.http.body import read_body
from anychip.http.errors import ApiError, bad_request, wrong_field
from anychip.http.relay import Passed, kept
from anychip.http.stream import json_response
from anychip.settings.router import WorkerPlace, tags_of, weight_of, worker_name, worker_url

from .about import told_of
from .desk import Desk
from .looking import Unwell, error_text, object_in, short_answer
from .worker import Worker

_T = TypeVar("_T", bound=msgspec.Struct)
_V = TypeVar("_V")


class NewWorker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /workers. name: HOST:PORT where it is left out."""

    url: str
    name: str | None = None
    tags: list[str] = []
    weight: float = 1.0


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /abort_request: one exact rid (or response id), or all."""

    rid: str | None = None
    abort_all: bool = False


async def _read(request: Request, kind: type[_T]) -> _T:
    desk: Desk = request.app.state.desk
    return _decoded(await read_body(request, desk.config.max_request_bytes), kind)


def _decoded(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise wrong_field(error) from error
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body: {error}") from error


def _field(read: Callable[[str, str], _V], value: str, name: str) -> _V:
    """A field as `read` takes it, or the error that names it."""
    try:
        return read(value, name)
    except ConfigError as error:
        raise bad_request(str(error), name) from error


async def add_worker(request: Request) -> Response:
    """Take a worker in; it gets calls once it is ready."""
    require_admin(request)
    desk: Desk = request.app.state.desk
    desk.check_open(request)
    asked = await _read(request, NewWorker)
    url = _field(worker_url, asked.url, "url")
    host = url.partition("://")[2]
    name = host if asked.name is None else _field(worker_name, asked.name, "name")
    tags = _field(tags_of, "+".join(asked.tags), "tags")
    weight = _field(weight_of, str(asked.weight), "weight")
    try:
        worker = desk.fleet.add(WorkerPlace(name, url, tags, weight))
    except ConfigError as error:
        taken = "name" if name in desk.fleet.workers else "url"
        raise bad_request(str(error), taken) from error
    return Response(msgspec.json.encode(told_of(desk, worker)), 201, media_type="application/json")


async def remove_worker(request: Request) -> Response:
    """Drain a worker, then remove it: answered when that is done, or the time is over."""
    require_admin(request)
    desk: Desk = request.app.state.desk
    name = str(request.path_params["name"])
    if name not in desk.fleet.workers:
        known = ", ".join(desk.fleet.workers) or "none"
        text = f"there is no worker {name!r}; workers: {known}"
        raise ApiError(404, text, param="name", code="no_such_worker")
    left = await desk.fleet.remove(name, desk.config.shutdown_timeout)
    return json_response({"name": name, "state": "gone", "calls_left": left})


async def flush_cache(request: Request) -> Response:
    """Empty the prefix cache of every worker that is ready, and tell what each of them said, and
    who was not asked."""
    require_admin(request)
    desk: Desk = request.app.state.desk
    desk.check_loop(request)
    workers = desk.fleet.ready()
    answers = await _ask_all(desk, request, workers, b"")
    for name, (status, _) in answers.items():
        if status == 200:
            desk.picker.policy.forget(name)
    flushed = [status == 200 for status, _ in answers.values()]
    told = {name: {"status": status, "answer": body} for name, (status, body) in answers.items()}
    skipped = {one.name: one.state for one in desk.fleet.workers.values() if one not in workers}
    body = {"success": bool(flushed) and all(flushed), "workers": told, "not_asked": skipped}
    status = max((status for status, _ in answers.values()), default=503)
    return Response(msgspec.json.encode(body), status, media_type="application/json")


async def abort_request(request: Request) -> Response:
    """End a running call of the caller by its exact id; anybody's, and all, with the admin key."""
    desk: Desk = request.app.state.desk
    desk.check_loop(request)
    body = await read_body(request, desk.config.max_request_bytes)
    asked = _decoded(body, AbortRequest)
    if asked.abort_all == (asked.rid is not None):
        raise bad_request("send one of rid and abort_all: true", "rid")
    if asked.abort_all:
        require_admin(request)
        answers = await _ask_all(desk, request, desk.fleet.at_work(), body)
    else:
        answers = await _ask_all(desk, request, _who_runs(desk, request, asked.rid or ""), body)
    ended = {
        name: told.get("aborted", 0) for name, (status, told) in answers.items() if status == 200
    }
    if not ended and not asked.abort_all:
        raise _not_ended(asked.rid or "", answers)
    told = {name: {"status": status, "answer": found} for name, (status, found) in answers.items()}
    answer = msgspec.json.encode({"aborted": sum(ended.values()), "workers": told})
    status = max((status for status, _ in answers.values()), default=200)
    return Response(answer, status, media_type="application/json")


def _not_ended(rid: str, answers: dict[str, tuple[int, dict[str, Any]]]) -> ApiError:
    """Why a call was not ended: whoever refused to look for it may run it all the same."""
    for name, (status, told) in answers.items():
        if status != 404:
            text = f"worker {name!r} says {status}: {error_text(told)}"
            return ApiError(status, text, code="worker_refused")
    return ApiError(404, f"no running request has the id {rid!r}", param="rid")


def _who_runs(desk: Desk, request: Request, rid: str) -> list[Worker]:
    """The worker that runs the call. Where it is not known all may, unless that would let a tenant
    end another's: workers that see one client alone cannot tell."""
    caller = caller_of(request)
    name = desk.holders.running(rid, caller.tenant, admin=caller.admin)
    if name is None:
        told_apart = caller.admin or caller.tenant is None or not desk.one_tenant
        return desk.fleet.at_work() if told_apart else []
    worker = desk.fleet.workers.get(name)
    return [] if worker is None else [worker]


async def _ask_all(
    desk: Desk, request: Request, workers: list[Worker], body: bytes
) -> dict[str, tuple[int, dict[str, Any]]]:
    """Status and answer of each, asked side by side; 502 of one that did not answer."""
    headers = desk.headers_for_worker(kept(request.headers.raw))
    limit_s = desk.config.health_check_timeout_s

    async def ask(worker: Worker) -> tuple[int, dict[str, Any]]:
        asked = Passed("POST", worker.place.url, request.url.path, headers, body)
        try:
            status, found = await asyncio.wait_for(short_answer(desk.relay, asked), limit_s)
        except Unwell as error:
            return 502, {"error": {"message": str(error)}}
        except asyncio.TimeoutError:
            return 504, {"error": {"message": f"no answer within {limit_s:g} s"}}
        return status, object_in(found) or {"text": found.decode("utf-8", "replace")}

    found = await asyncio.gather(*map(ask, workers))
    return {worker.name: one for worker, one in zip(workers, found, strict=True)}
