"""GET /openapi.json: the endpoints as an OpenAPI 3.1 document, made from the structs they use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip import __version__
from anychip.http.auth import OPEN_PATHS
from anychip.http.stream import json_response
from anychip.server.endpoints import ENDPOINTS, Endpoint
from anychip.server.native_protocol import SAMPLING_NOT_YET, NativeSampling
from anychip.server.origin import HIGHEST, LOWEST, MAX_PART_CHARS
from anychip.server.sampling import (
    MAX_BAD_WORD_CHARS,
    MAX_BAD_WORDS,
    MAX_BIASED,
    MAX_LOGPROBS,
    MAX_N,
    MAX_STOP_CHARS,
    MAX_STOP_IDS,
    MAX_STOPS,
    MOST_BIAS,
    REPETITION,
)
from anychip.server.service import Service
from anychip.server.validation import HARMLESS, MAX_RID_CHARS

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"\{(\w+)\}")
_COUNT = {"minimum": 1}
_PENALTY = {"minimum": -2, "maximum": 2}
_LIKELIEST = {"minimum": 0, "maximum": MAX_LOGPROBS}
_PART = {"minLength": 1, "maxLength": MAX_PART_CHARS}

_LIMITS: Mapping[str, Schema] = {
    "n": {"minimum": 1, "maximum": MAX_N},
    "best_of": {"minimum": 1, "maximum": MAX_N},
    "frequency_penalty": _PENALTY,
    "presence_penalty": _PENALTY,
    "repetition_penalty": {"minimum": REPETITION[0], "maximum": REPETITION[1]},
    "logit_bias": {
        "propertyNames": {"pattern": "^[0-9]+$"},
        "maxProperties": MAX_BIASED,
        "additionalProperties": {"type": "number", "minimum": -MOST_BIAS, "maximum": MOST_BIAS},
    },
    "bad_words": {
        "maxItems": MAX_BAD_WORDS,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_BAD_WORD_CHARS},
    },
    "allowed_token_ids": {
        "minItems": 1,
        "items": {"$ref": "#/components/schemas/TokenId"},
    },
    "min_tokens": {"minimum": 0},
    "min_new_tokens": {"minimum": 0},
    "top_logprobs": _LIKELIEST,
    "prompt_logprobs": _LIKELIEST,
    "top_logprobs_num": _LIKELIEST,
    "logprob_start_len": {"minimum": -1},
    "temperature": {"minimum": 0},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"minimum": -1, "not": {"const": 0}, "maximum": 2**31 - 1},
    "min_p": {"minimum": 0, "maximum": 1},
    "seed": {"minimum": -(2**63), "maximum": 2**63 - 1},
    "sampling_seed": {"minimum": -(2**63), "maximum": 2**63 - 1},
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "max_output_tokens": _COUNT,
    "max_new_tokens": _COUNT,
    "stop": {"minLength": 1, "maxLength": MAX_STOP_CHARS, "maxItems": MAX_STOPS},
    "stop_token_ids": {"maxItems": MAX_STOP_IDS},
    "rid": {"minLength": 1, "maxLength": MAX_RID_CHARS},
    "cache_salt": _PART,
    "extra_key": _PART,
    "priority": {"minimum": LOWEST, "maximum": HIGHEST},
}
"""Of request fields; JSON Schema applies each to the types that have it."""

_MESSAGE: Schema = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string"},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}},
            ]
        },
    },
}
_ITEM: Schema = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "type": {"const": "message"},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"type": "string"},
    },
}
"""The plainest of the items that /v1/responses takes."""
_TURN: Schema = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["user", "assistant", "system"]},
        "content": {"type": "string"},
    },
}
"""The plainest of the turns that /v1/messages takes."""
_TEXTS: list[Schema] = [
    {"type": "string", "minLength": 1},
    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
]
_IDS: list[Schema] = [
    {"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}, "minItems": 1},
    {
        "type": "array",
        "items": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/TokenId"},
            "minItems": 1,
        },
        "minItems": 1,
    },
]
_TOLD_BETTER: Mapping[tuple[str, str], Schema] = {
    ("ChatRequest", "messages"): {"type": "array", "items": _MESSAGE, "minItems": 1},
    ("CompletionRequest", "prompt"): {"anyOf": _TEXTS + _IDS},
    ("CountRequest", "messages"): {"type": "array", "items": _TURN, "minItems": 1},
    ("MessagesRequest", "messages"): {"type": "array", "items": _TURN, "minItems": 1},
    ("ResponsesRequest", "input"): {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": _ITEM, "minItems": 1},
        ]
    },
    ("GenerateRequest", "text"): {"anyOf": _TEXTS},
    ("GenerateRequest", "input_ids"): {"anyOf": _IDS},
    ("GenerateRequest", "sampling_params"): {
        "anyOf": [{"$ref": "#/components/schemas/NativeSampling"}, {"type": "null"}]
    },
    ("TokenizeRequest", "prompt"): {"anyOf": _TEXTS},
    ("TokenizeRequest", "text"): {"anyOf": _TEXTS},
    ("DetokenizeRequest", "tokens"): {"anyOf": _IDS},
}
"""Fields whose types alone say too little."""
_EITHER = {"GenerateRequest": ("text", "input_ids"), "TokenizeRequest": ("prompt", "text")}
"""Fields of which a request has exactly one."""
_TEXT_PART: Schema = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}


async def openapi(request: Request) -> Response:
    """The document of this server."""
    service: Service = request.app.state.service
    told = document(service.access.needed, service.model_name, service.info.vocab_size)
    return json_response(told)


def document(locked: bool, model: str, vocab_size: int) -> Schema:
    """The whole document. locked: whether clients need a key. model: the served name."""
    paths: dict[str, Schema] = {}
    for endpoint in ENDPOINTS:
        for method in endpoint.methods:
            told = _operation(endpoint, locked)
            paths.setdefault(endpoint.path, {})[method] = told
    schemas = _schemas(model)
    schemas["TokenId"] = {"type": "integer", "minimum": 0, "maximum": vocab_size - 1}
    keys = {
        "key": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "AnyChip", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": keys},
    }


def _operation(endpoint: Endpoint, locked: bool) -> Schema:
    told: Schema = {"summary": endpoint.summary, "responses": _responses(endpoint)}
    if endpoint.body is not None:
        content = {"application/json": {"schema": _ref(endpoint.body)}}
        told["requestBody"] = {"required": endpoint.body_needed, "content": content}
    told["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _IN_PATH.findall(endpoint.path)
    ] + [{"name": name, "in": "query", "schema": kind} for name, kind in endpoint.query.items()]
    if locked and endpoint.path not in OPEN_PATHS:
        told["security"] = [{"key": []}, {"x-api-key": []}]
    return told


def _responses(endpoint: Endpoint) -> Schema:
    content: Schema = {endpoint.media: {"schema": _answer_schema(endpoint.answer)}}
    if endpoint.events:
        content["text/event-stream"] = {"schema": _event_schema(endpoint)}
    answers: Schema = {"200": {"description": "The answer.", "content": content}}
    error = {"application/json": {"schema": _ref(endpoint.error)}}
    for status, meaning in endpoint.errors.items():
        answers[str(status)] = {"description": meaning, "content": error}
    return answers


def _event_schema(endpoint: Endpoint) -> Schema:
    """Of one event. `contentSchema` would be applied to the last one too, which is no JSON."""
    data = {
        "type": "string",
        "description": "JSON as x-json says, or [DONE] at the end",
        "x-json": {"anyOf": [_ref(struct) for struct in (*endpoint.events, endpoint.error)]},
    }
    return {"type": "object", "required": ["data"], "properties": {"data": data}}


def _answer_schema(answer: Any) -> Schema:
    if isinstance(answer, dict):
        return answer
    if isinstance(answer, tuple):  # one, or a list of them
        return {"anyOf": [_ref(answer[0]), {"type": "array", "items": _ref(answer[0])}]}
    return _ref(answer)


def _ref(struct: type) -> Schema:
    return {"$ref": _REF.format(name=struct.__name__)}


def _structs() -> Iterator[type]:
    yield NativeSampling
    for endpoint in ENDPOINTS:
        for item in (endpoint.body, *endpoint.events, endpoint.answer, endpoint.error):
            item = item[0] if isinstance(item, tuple) else item
            if isinstance(item, type):
                yield item


def _schemas(model: str) -> Schema:
    structs = list(dict.fromkeys(_structs()))
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REF)
    schemas["TextPart"] = _TEXT_PART
    for endpoint in ENDPOINTS:
        if endpoint.body is not None:
            _tell_request(schemas[endpoint.body.__name__], endpoint.not_yet)
    _tell_request(schemas["NativeSampling"], SAMPLING_NOT_YET)
    for (name, field), told in _TOLD_BETTER.items():
        schemas[name]["properties"][field] = told
    for name, fields in _EITHER.items():
        schemas[name]["oneOf"] = [{"required": [field]} for field in fields]
    for schema in schemas.values():
        if schema.get("additionalProperties") is False and "model" in schema["properties"]:
            schema["properties"]["model"] = {"enum": [None, model]}
    return schemas


def _tell_request(schema: Schema, not_yet: Mapping[str, Any]) -> None:
    """Add the limits that the types do not say, and which further fields are taken."""
    fields = schema["properties"]
    for name, limits in _LIMITS.items():
        if name in fields:
            for kind in fields[name].get("anyOf", [fields[name]]):
                kind.update(_fitting(kind, limits))
    for name, neutral in not_yet.items():
        fields.setdefault(name, {"enum": [None, *neutral]})
    for name in HARMLESS:
        fields.setdefault(name, {})
    schema["additionalProperties"] = False


_OF_TYPE = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("propertyNames", "maxProperties", "additionalProperties"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "not"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "not"),
}


def _fitting(kind: Schema, limits: Schema) -> Schema:
    names = _OF_TYPE.get(kind.get("type", ""), ())
    return {name: limits[name] for name in names if name in limits}
