from __future__ import annotations

import asyncio
import json

import openai
import pytest

from served import wait_until

FACE = "\U0001f642"
HI = [{"role": "user", "content": "hi"}]
PROMPT_TOKENS = 20  # one a byte and one a special token


def ask(client, messages=HI, **fields):
    fields = {"model": "tiny", "max_tokens": 8, **fields}
    return client.chat.completions.create(messages=messages, **fields)


def test_a_chat_is_answered(client):
    answer = ask(client)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == FACE + "abcd"
    assert choice.finish_reason == "length"
    assert answer.object == "chat.completion" and answer.model == "tiny"
    assert answer.usage.prompt_tokens == PROMPT_TOKENS
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == PROMPT_TOKENS + 8


def test_the_second_turn_hits_the_cache(client):
    first = [{"role": "user", "content": "Q7: what did nobody ask before?"}]
    answer = ask(client, first)
    assert answer.usage.prompt_tokens_details.cached_tokens < 16
    said = {"role": "assistant", "content": answer.choices[0].message.content}
    second = ask(client, [*first, said, {"role": "user", "content": "more"}])
    assert second.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens


def test_a_stream_says_the_same_with_the_role_first_and_usage_last(client):
    options = {"include_usage": True}
    chunks = list(ask(client, stream=True, stream_options=options))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == FACE + "abcd"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_usage_has_no_such_field(http):
    body = {"messages": HI, "max_tokens": 2, "stream": True}
    lines = http.post("/v1/chat/completions", json=body).text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(line[6:]) for line in lines[:-1])


def test_a_face_of_four_tokens_is_one_delta(client):
    chunks = list(ask(client, stream=True, max_tokens=5))
    deltas = [c.choices[0].delta.content for c in chunks if c.choices[0].delta.content]
    assert deltas == [FACE, "a"]


def test_n_choices_are_told_apart(client):
    answer = ask(client, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage.completion_tokens == 24
    assert answer.usage.prompt_tokens == PROMPT_TOKENS


def test_n_streams_share_one_answer(client):
    chunks = list(ask(client, n=2, stream=True))
    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: FACE + "abcd", 1: FACE + "abcd"}


def test_the_default_length_is_all_the_room(client):
    answer = client.chat.completions.create(model="tiny", messages=HI)
    assert answer.usage.total_tokens == 256
    assert answer.choices[0].finish_reason == "length"


def test_max_completion_tokens_counts_before_max_tokens(client):
    answer = ask(client, max_tokens=9, max_completion_tokens=5)
    assert answer.usage.completion_tokens == 5


def test_template_variables_reach_the_template(client):
    answer = ask(client, extra_body={"chat_template_kwargs": {"ending": "}"}})
    assert answer.choices[0].message.content == "~"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].model_extra["matched_stop"] == 257
    assert answer.usage.completion_tokens == 2  # the end token counts, its text is not shown


def test_content_parts_and_neutral_fields_are_taken(client):
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    neutral = {"presence_penalty": 0.0, "logprobs": False, "response_format": {"type": "text"}}
    answer = ask(client, parts, user="me", store=False, logit_bias={}, **neutral)
    assert answer.usage.prompt_tokens == PROMPT_TOKENS


def test_the_async_client_and_many_at_once(server):
    async def main():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none") as client:
            return await asyncio.gather(*[ask_later(client, n) for n in range(1, 20)])

    async def ask_later(client, tokens):
        stream = await ask(client, stream=True, max_tokens=tokens + 4)
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    alphabet = "abcdefghijklmnopqrstuvwxyz"
    assert asyncio.run(main()) == [FACE + alphabet[:n] for n in range(1, 20)]


def test_a_template_error_is_a_400_with_its_own_words(client):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, [{"role": "bad", "content": "x"}])
    assert "no role bad" in caught.value.body["message"]


def test_an_unknown_model_is_a_404_that_names_the_known_one(client):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model="gpt-9")
    assert caught.value.code == "model_not_found" and "'tiny'" in caught.value.body["message"]


def test_an_engine_error_before_the_first_token_is_a_500(client):
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, [{"role": "user", "content": "\x03"}], stream=True)
    assert "scripted failure" in caught.value.body["message"]


def test_every_call_leaves_the_register(server, client):
    ask(client)
    wait_until(lambda: not server.service.live)
