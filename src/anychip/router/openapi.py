"""GET /openapi.json: the router's own endpoints, and what it passes on as a worker describes it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anychip import __version__
from anychip.http.auth import OPEN_PATHS
from anychip.http.errors import LIST, ErrorEnvelope
from anychip.http.relay import Passed
from anychip.http.stream import json_response

from .admin import AbortRequest, NewWorker
from .asking import ROUTED
from .desk import Desk
from .looking import Unwell, object_in, short_answer

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")
_BODIES = {("/workers", "post"): NewWorker, ("/abort_request", "post"): AbortRequest}
_KEYS: Schema = {
    "key": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_PASSED_ON = "Passed on to a worker, which is not there or does not tell what it takes."


async def openapi(request: Request) -> Response:
    """This document: what is passed on as the first worker that is ready and tells describes it."""
    desk: Desk = request.app.state.desk
    desk.check_loop(request)
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    models = {name for worker in desk.fleet.ready() for name in worker.facts.models}
    theirs = await _of_a_worker(desk)
    return json_response(document(routes, theirs, sorted(models), locked=desk.access.needed))


async def _of_a_worker(desk: Desk) -> Schema:
    """The document of one; empty where none is ready, or none of those has one."""
    for worker in desk.fleet.ready():
        asked = Passed("GET", worker.place.url, LIST, desk.own_headers(), b"")
        try:
            status, body = await short_answer(desk.relay, asked)
            found = object_in(body)
        except Unwell:  # the next look at it tells why
            continue
        if status == 200 and isinstance(found.get("paths"), dict):
            return found
    return {}


def document(routes: list[Route], theirs: Schema, models: list[str], *, locked: bool) -> Schema:
    """The whole document. theirs: a worker's. models: of all workers. locked: whether clients need
    a key."""
    parts, structs = _object(theirs.get("components")), [ErrorEnvelope, *_BODIES.values()]
    schemas = _for_all(_object(parts.get("schemas")), models)
    _, ours = msgspec.json.schema_components(structs, ref_template=_REF)
    told = {_plain(path): path for path in _object(theirs.get("paths"))}
    paths: dict[str, Schema] = {}
    for route in routes:
        path = _PLACE.sub(r"{\1}", route.path)
        passed_on = path in ROUTED or path.startswith("/v1/responses/")
        name = told.get(_plain(path), path) if passed_on else path
        known = _object(_object(theirs.get("paths")).get(name)) if passed_on else {}
        for method in sorted(word.lower() for word in (route.methods or ()) if word != "HEAD"):
            found = _object(known.get(method)) or _operation(route, path, method, passed_on)
            lock: Schema = {"security": [{key: []} for key in _KEYS]}
            open_to_all = not locked or path in OPEN_PATHS
            paths.setdefault(name, {})[method] = {
                **{word: value for word, value in found.items() if word != "security"},
                **({} if open_to_all else lock),
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "AnyChip router", "version": __version__},
        "paths": paths,
        "components": {**parts, "schemas": {**schemas, **ours}, "securitySchemes": _KEYS},
    }


def _object(value: object) -> Schema:
    """A worker's word where an object has to be: empty where it is none."""
    return value if isinstance(value, dict) else {}


def _plain(path: str) -> str:
    """The path whatever its parameters are called."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def _for_all(schemas: Schema, models: list[str]) -> Schema:
    """A worker's schemas, in which `model` may be any worker's. Where there are several models, ids
    of tokens have no common limit."""
    changed: Schema = json.loads(json.dumps(schemas))
    for schema in changed.values():
        model = _object(_object(_object(schema).get("properties")).get("model"))
        if "enum" in model:
            model["enum"] = [None, *models]
    if len(models) > 1:
        _object(changed.get("TokenId")).pop("maximum", None)
    return changed


def _operation(route: Route, path: str, method: str, passed_on: bool) -> Schema:
    """What is known of an endpoint where no worker describes it."""
    summary = _PASSED_ON if passed_on else (route.endpoint.__doc__ or "").partition("\n")[0]
    media = "text/plain" if path == "/metrics" else "application/json"
    told: Schema = {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": {media: {"schema": {}}}},
            "default": {
                "description": "An error.",
                "content": {
                    "application/json": {"schema": {"$ref": _REF.format(name="ErrorEnvelope")}}
                },
            },
        },
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PLACE.findall(path)
        ],
    }
    body = _BODIES.get((path, method))
    if body is not None or (passed_on and method == "post"):
        schema = {"$ref": _REF.format(name=body.__name__)} if body else {"type": "object"}
        content = {"application/json": {"schema": schema}}
        told["requestBody"] = {"required": True, "content": content}
    return told
