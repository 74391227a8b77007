"""`emit_token_ids`: taken where the server allows it, refused by name otherwise."""

from __future__ import annotations

import pytest

from anychip.config import ServeConfig
from anychip.schedule.refusal import RequestRefused, refuse_unfit
from anychip.server.exposure import exposures
from scripted_engine import EOS, VOCAB
from served import config_for, model_folder, running

EMIT = [*b"xyz", 7, EOS, 200]


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    folder = model_folder(tmp_path_factory.mktemp("model"))
    config = config_for(folder, allow_exact_replay=True, chip_option={"polite": "1"})
    with running(config) as server, server.http() as client:
        yield client


def test_both_endpoints_answer_what_is_named(http):
    body = {"input_ids": [5, 6, 7], "emit_token_ids": EMIT}
    answer = http.post("/generate", json=body).json()
    assert answer["output_ids"] == EMIT
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 6}
    one = http.post("/v1/completions", json={"prompt": [5, 6, 7], "emit_token_ids": EMIT}).json()
    assert one["choices"][0]["text"] == answer["text"]
    assert one["choices"][0]["finish_reason"] == "length"
    assert one["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"emit_token_ids": []}, "is empty; name at least one token"),
        ({"emit_token_ids": [VOCAB]}, "emit_token_ids[0] is 260; the vocabulary has ids 0 to 259"),
        ({"emit_token_ids": [-1]}, "emit_token_ids[0] is -1"),
        ({"max_tokens": 3}, "has 6 tokens and max_tokens is 3"),
        ({"n": 2}, "together with several prompts or choices"),
        ({"prompt": [[1], [2]]}, "together with several prompts or choices"),
        ({"regex": "a*"}, "together with a grammar"),
        ({"logprobs": 1}, "together with logprobs"),
        ({"stop": "x"}, "together with stop"),
        ({"stop_regex": "x"}, "together with stop_regex"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(http, fields, told):
    body = {"prompt": [5], "emit_token_ids": EMIT, **fields}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


def test_a_server_that_does_not_allow_it_says_so(tmp_path):
    with running(config_for(model_folder(tmp_path))) as server, server.http() as client:
        for path, prompt in (("/generate", "text"), ("/v1/completions", "prompt")):
            answer = client.post(path, json={prompt: "a", "emit_token_ids": [98]})
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == ("emit_token_ids", "not_allowed")
            assert "--allow-exact-replay" in error["message"]


def test_the_start_warns_that_answers_can_be_dictated():
    (told,) = exposures(ServeConfig(allow_exact_replay=True), locked=True)
    assert "ANSWERS CAN BE DICTATED" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_tokens": 3}, "names 2 tokens and has max_tokens 3"),
        ({"logprobs": 0}, "asks for logprobs"),
        ({"emit": (1, -2)}, "names a token outside"),
    ],
)
def test_the_scheduler_refuses_what_contradicts_itself(changes, told):
    from anychip.plan import CacheLimits
    from anychip.request import Request, SamplingParams
    from anychip.schedule.options import DEFAULT_OPTIONS

    limits = CacheLimits(
        pages=8, page_size=4, context_length=32, max_running=2, step_tokens=8, chunk=8
    )
    params = SamplingParams(**{"max_tokens": 2, "emit": (1, 2), **changes})
    with pytest.raises(RequestRefused, match=told):
        refuse_unfit(Request(id="r", prompt=(1,), params=params), limits, DEFAULT_OPTIONS)
