"""What the log says of calls: ids always, texts only where they were asked for."""

from __future__ import annotations

import logging

import pytest

from anychip.config import ConfigError, ServeConfig
from anychip.server.exposure import exposures
from scripted_engine import FAIL
from served import config_for, running

SECRET, ANSWER = "psst 123", "4567"
CALLS = {
    "/v1/completions": {"prompt": SECRET, "max_tokens": 4, "stop": "secret stop"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 4},
    "/generate": {"text": SECRET, "sampling_params": {"max_new_tokens": 4}},
}
WRONG = [
    ("/v1/completions", {"prompt": SECRET, "max_tokens": 10**9}, 400),
    ("/v1/completions", {"prompt": SECRET, SECRET: 1}, 400),
    ("/v1/completions", {"prompt": SECRET, "stop": [SECRET] * 99}, 400),
    ("/v1/completions", {"prompt": SECRET + chr(FAIL), "max_tokens": 4}, 500),
    ("/v1/chat/completions", {"messages": [{"role": "bad", "content": SECRET}]}, 400),
    ("/tokenize", {"prompt": SECRET}, 200),
]


@pytest.fixture
def said(folder, caplog):
    """The log of a server, after one call of each kind and some that go wrong."""

    def of(**flags):
        caplog.set_level(logging.DEBUG)
        config = config_for(folder, log_level="debug", **flags)
        with running(config) as server, server.http() as http:
            for path, body in CALLS.items():
                assert http.post(path, json={**body, "rid": "id" + path}).status_code == 200
            for path, body, status in WRONG:
                assert http.post(path, json=body).status_code == status
        clients = ("httpx", "httpcore")
        return "\n".join(
            caplog.handler.format(record)
            for record in caplog.records
            if not record.name.startswith(clients)
        )

    return of


@pytest.mark.parametrize(
    "flags",
    [{}, {"log_requests": True, "log_requests_level": 0}, {"log_requests": True}],
)
def test_no_text_of_a_user_is_logged_unasked(said, flags):
    text = said(**flags)
    for path in CALLS:
        assert f"'id{path}'" in text
    for secret in ("psst", "12345", ANSWER, "secret stop"):
        assert secret not in text
    assert ("begins: n = 1, prompts of [8] tokens, priority 0" in text) is bool(flags)
    assert ("temperature 1.0" in text) is (flags == {"log_requests": True})


@pytest.mark.parametrize("level", [2, 3])
def test_texts_are_logged_where_they_are_asked_for_and_that_is_said_loudly(said, level):
    text = said(log_requests=True, log_requests_level=level)
    assert f"THE LOG SHOWS PROMPTS AND ANSWERS (--log-requests-level {level})" in text
    for path in ("/v1/completions", "/generate"):
        assert f"'id{path}' answers: ['{ANSWER}']" in text
    assert f"prompts ['{SECRET}']" in text and "('secret stop',)" in text
    assert "<|im_start|>user\\npsst" in text  # control characters cannot break a line


def test_long_texts_are_cut_at_level_two_alone(folder, caplog):
    caplog.set_level(logging.INFO)
    prompt = "a" * 5000
    for level in (2, 3):
        config = config_for(
            folder,
            context_length=8192,
            chip_option={"pages": "4096"},
            log_requests=True,
            log_requests_level=level,
        )
        caplog.clear()
        with running(config) as server, server.http() as http:
            http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        assert (prompt in caplog.text) is (level == 3)
        assert ("a" * 2048 + " ... (of 5000 characters)" in caplog.text) is (level == 2)


def test_levels():
    assert exposures(ServeConfig(log_requests=True, log_requests_level=1), locked=True) == []
    with pytest.raises(ConfigError, match="add --log-requests or leave it out"):
        ServeConfig(log_requests_level=3)
    with pytest.raises(ConfigError, match="--log-requests-level: 4"):
        ServeConfig(log_requests=True, log_requests_level=4)
