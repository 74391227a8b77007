"""The whole way, once: HTTP to kernels and back with the demo model."""

from __future__ import annotations

import openai
import pytest

from anychip.engine.client import DEFAULT_BUILDER
from served import config_for, running

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def real(demo_model):
    # The answer's first token is a near-tie (0.08): in bfloat16 rounding decides it.
    limits = {"context_length": 512, "max_total_tokens": 2048, "max_running_requests": 4}
    limits["dtype"] = "float32"
    config = config_for(demo_model, served_model_name="demo", skip_server_warmup=False, **limits)
    with (
        running(config, builder=DEFAULT_BUILDER) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def ask(client, messages, **fields):
    fields = {"model": "demo", "max_tokens": 24, "temperature": 0, **fields}
    return client.chat.completions.create(messages=messages, **fields)


def test_the_capital_of_france_and_a_second_turn_from_the_cache(real):
    first = ask(real, QUESTION)
    answer = first.choices[0].message.content
    assert "Paris" in answer and first.choices[0].finish_reason == "stop"
    turns = [*QUESTION, {"role": "assistant", "content": answer}]
    second = ask(real, [*turns, {"role": "user", "content": "And of Italy?"}])
    assert second.usage.prompt_tokens_details.cached_tokens >= 32


def test_a_stream_and_a_stop_string(real):
    whole = ask(real, QUESTION).choices[0].message.content
    stream = ask(real, QUESTION, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole
    cut = ask(real, QUESTION, stop=["aris"])
    assert cut.choices[0].message.content == whole.partition("aris")[0]
    assert cut.choices[0].finish_reason == "stop"


def test_a_seed_repeats_a_hot_answer(real):
    hot = {"temperature": 1.5, "seed": 5, "n": 2}
    first, again = ([c.message.content for c in ask(real, QUESTION, **hot).choices] for _ in "ab")
    assert first == again and first[0] != first[1]
