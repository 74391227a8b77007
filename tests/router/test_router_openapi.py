"""What the router's own document says, with and without a worker that has one."""

from __future__ import annotations

import re

import pytest
from routed import ScriptedWorker, routing

from anychip.router.app import ROUTES
from anychip.router.asking import ROUTED
from anychip.router.openapi import document as whole
from anychip.server.openapi import document

PATHS = {re.sub(r"\{(\w+):path\}", r"{\1}", route.path) for route in ROUTES}


def worker(name, models, openapi=None):
    return ScriptedWorker(name, models=models, openapi=openapi).start()


@pytest.fixture
def two():
    """One that has no document, and one that has; of two models."""
    both = [worker("one", ["a"]), worker("two", ["b"], document(False, "b", 260))]
    yield both
    for one in both:
        one.stop()


def told_by(workers):
    with routing(workers) as router, router.http() as http:
        answer = http.get("/openapi.json")
        assert answer.status_code == 200, answer.text
        return answer.json()


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        value = list(value.values())
    for item in value if isinstance(value, list) else []:
        yield from references(item)


def check_whole(told):
    """Every path of the router is there, every reference leads to something."""
    assert {re.sub(r"\{\w+\}", "{}", path) for path in told["paths"]} == {
        re.sub(r"\{\w+\}", "{}", path) for path in PATHS
    }
    names = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    found = set(references(told))
    assert found and found <= names, found - names


def test_what_is_passed_on_is_described_by_a_worker_for_all_models(two):
    told = told_by(two)
    check_whole(told)
    chat = told["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/ChatRequest"
    )
    schemas = told["components"]["schemas"]
    assert schemas["ChatRequest"]["properties"]["model"] == {"enum": [None, "a", "b"]}
    assert "maximum" not in schemas["TokenId"]
    assert told["paths"]["/workers"]["post"]["summary"].startswith("Take a worker in")
    assert not any("security" in each for path in told["paths"].values() for each in path.values())


@pytest.mark.parametrize("openapi", [None, {"paths": {}}, {"paths": {"/generate": 5}}])
def test_without_a_worker_that_tells_paths_are_there_all_the_same(openapi):
    one = worker("one", ["a"], openapi)
    try:
        told = told_by([one])
    finally:
        one.stop()
    check_whole(told)
    for path in ROUTED:
        assert told["paths"][path]["post"]["summary"].startswith("Passed on to a worker")


@pytest.mark.parametrize("theirs", [{}, document(True, "a", 260), document(False, "a", 260)])
def test_whether_a_key_is_needed_is_the_routers_word(theirs):
    for locked in (True, False):
        paths = whole(list(ROUTES), theirs, ["a"], locked=locked)["paths"]
        lock = [{"key": []}, {"x-api-key": []}] if locked else None
        assert paths["/generate"]["post"].get("security") == lock
        assert paths["/workers"]["get"].get("security") == lock
        assert "security" not in paths["/health"]["get"]
