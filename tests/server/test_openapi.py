"""The OpenAPI document, and requests made from it: none crashes, every answer is as documented."""

from __future__ import annotations

import functools
import operator

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from anychip.http.errors import ErrorEnvelope
from anychip.server.app import ROUTES
from anychip.server.endpoints import ENDPOINTS
from anychip.server.openapi import document
from served import bearer, config_for, running, wait_until

CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
OPERATIONS = [(endpoint.path, method) for endpoint in ENDPOINTS for method in endpoint.methods]
WITH_BODY = [
    (endpoint.path, method)
    for endpoint in ENDPOINTS
    for method in endpoint.methods
    if endpoint.body is not None
]
EVENTS = {one.path: one.events for one in ENDPOINTS if one.events and one.body is not None}
load_all_checks()


@pytest.fixture(scope="module")
def asked(folder):
    """(operation, session) of a server that nothing in a prompt makes misbehave."""
    options = {"polite": "1", "pages": "512"}
    config = config_for(folder, chip_option=options, max_tokens_per_call=4000)
    with running(config) as server, requests.Session() as session:
        schema = schemathesis.openapi.from_url(server.url + "/openapi.json")

        def find(path, method):
            return schema[path][method], session

        yield find
        assert server.service.client.deaths == 0
        wait_until(lambda: not server.service.live)  # the background's own ones too


def check_events(text, structs):
    *events, end = text.removesuffix("\n\n").split("\n\n")
    for event in events if end == "data: [DONE]" else [*events, end]:
        *names, line = event.split("\n")
        data = line.removeprefix("data: ")
        kinds = (ErrorEnvelope,) if data.startswith('{"error"') else structs
        told = msgspec.json.decode(data, type=functools.reduce(operator.or_, kinds))
        assert names in ([], [f"event: {told.__struct_config__.tag}"])


def run(operation, session, mode, examples, stream=False):
    """Ask `examples` times with what the document allows, or what it does not."""
    strategy = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def ask(case):
        if stream:
            case.body["stream"] = True
        answer = case.call(session=session)
        assert answer.status_code < 500, answer.text
        case.validate_response(answer, checks=CHECKS)
        if answer.headers["content-type"][0].startswith("text/event-stream"):
            check_events(answer.text, EVENTS[operation.path])

    ask()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_what_the_document_allows_is_answered_as_documented(asked, path, method):
    operation, session = asked(path, method)
    run(operation, session, GenerationMode.POSITIVE, 20 if (path, method) in WITH_BODY else 2)


@pytest.mark.parametrize("path", EVENTS)
def test_events_of_a_stream_are_as_documented(asked, path):
    operation, session = asked(path, "post")
    run(operation, session, GenerationMode.POSITIVE, 10, stream=True)


@pytest.mark.parametrize(("path", "method"), WITH_BODY)
def test_what_the_document_does_not_allow_is_refused_as_documented(asked, path, method):
    operation, session = asked(path, method)
    run(operation, session, GenerationMode.NEGATIVE, 15)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("path", "method"), WITH_BODY)
def test_many_requests_made_from_the_document(asked, path, method, mode):
    operation, session = asked(path, method)
    run(operation, session, mode, 400)


def test_every_route_is_in_the_document_and_no_other():
    routes = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in ROUTES
        for method in route.methods - {"HEAD"}
    }
    assert routes == set(OPERATIONS)


def test_only_what_needs_a_key_is_told_to(folder):
    paths = document(True, "tiny", 260)["paths"]
    free = {path for path, methods in paths.items() if "security" not in str(methods)}
    assert free == {"/health", "/ready", "/metrics"}
    assert "'security'" not in str(document(False, "tiny", 260)["paths"])
    with running(config_for(folder, api_key="k")) as server, server.http() as http:
        assert http.get("/openapi.json").status_code == 401
        told = http.get("/openapi.json", headers=bearer("k")).json()
        assert told["openapi"] == "3.1.0" and told["paths"]["/generate"]["put"]["security"]


def test_fields_of_a_request_are_told_with_their_limits():
    chat = document(False, "tiny", 260)["components"]["schemas"]["ChatRequest"]
    fields = chat["properties"]
    assert fields["n"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 128}
    assert fields["lora_path"] == {"enum": [None]}
    assert fields["user"] == {} and fields["top_logprobs"]["anyOf"][0]["maximum"] == 20
    assert chat["additionalProperties"] is False and chat["required"] == ["messages"]
