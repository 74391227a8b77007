"""A request that was present in two deaths of the engine is refused, and no other."""

from __future__ import annotations

import msgspec
import pytest

from anychip.engine.suspects import RequestSuspected, Suspects
from anychip.request import Request, SamplingParams

PARAMS = SamplingParams(max_tokens=4, seed=1)


def request(name="a", prompt=(1, 2), namespace="", **params):
    changed = msgspec.structs.replace(PARAMS, **params)
    return Request(id=name, prompt=prompt, params=changed, namespace=namespace)


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def suspects(now):
    return Suspects(600, lambda: now[0])


def test_the_second_death_makes_it_one(suspects):
    suspects.died([request("a")])
    suspects.check(request("b"))
    suspects.died([request("b", seed=7, draw=1)])
    with pytest.raises(RequestSuspected, match="present in 2 crashes of the engine"):
        suspects.check(request("c"))


def test_several_choices_of_one_call_count_once(suspects):
    suspects.died([request("a"), request("b", draw=1), request("c", draw=2)])
    suspects.check(request("d"))


@pytest.mark.parametrize(
    "other", [{"prompt": (1, 3)}, {"top_k": 5}, {"max_tokens": 5}, {"namespace": "x"}]
)
def test_another_request_is_welcome(suspects, other):
    suspects.died([request()])
    suspects.died([request()])
    suspects.check(request(**other))


def test_one_that_went_through_is_cleared(suspects):
    suspects.died([request()])
    suspects.finished(request("later"))
    suspects.died([request()])
    suspects.check(request())


def test_deaths_are_forgotten_with_the_window(suspects, now):
    suspects.died([request()])
    now[0] = 400.0
    suspects.died([request()])
    with pytest.raises(RequestSuspected, match="for the next 200 s"):
        suspects.check(request())
    now[0] = 601.0
    suspects.check(request())
