"""Calls of `anychip.Engine` from threads: answers, streams, aborts, and the server's own texts."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from anychip import Engine
from anychip.offline import CallFailed, CallRefused
from served import BUILDER, config_for, running, wait_until


def test_one_prompt_gets_an_answer_and_a_list_a_list(engine):
    answer = engine.generate("xa", max_tokens=4, seed=None)
    assert (answer.text, answer.token_ids) == ("bcde", list(b"bcde"))
    assert (answer.finish_reason, answer.matched_stop) == ("length", None)
    assert (answer.prompt_tokens, answer.completion_tokens) == (2, 4)
    assert [a.text for a in engine.generate(["a", "0"], max_tokens=2)] == ["bc", "12"]
    assert engine.generate([97], max_tokens=1).text == "b"
    assert [a.text for a in engine.generate([[97], [48]], max_tokens=1)] == ["b", "1"]
    assert engine.generate(input_ids=(97,), max_tokens=1).text == "b"


def test_sampling_params_make_it_a_call_of_the_native_endpoint(engine):
    params = {"max_new_tokens": 9, "stop": "e", "n": 2}
    (answer,) = engine.generate(["a"], params)
    assert [choice.text for choice in answer.choices] == ["bcd", "bcd"]
    assert [choice.matched_stop for choice in answer.choices] == ["e", "e"]
    assert answer.completion_tokens == 8
    assert engine.generate("a", {}).completion_tokens == 128
    assert engine.generate(input_ids=[97], sampling_params={"max_new_tokens": 1}).text == "b"
    with pytest.raises(CallRefused, match="priority 3, this server looks at none"):
        engine.generate("a", {}, priority=3)


def test_a_chat_and_its_stop_token(engine):
    answer = engine.chat([{"role": "user", "content": "hi"}], chat_template_kwargs={"ending": "}"})
    assert (answer.text, answer.finish_reason, answer.matched_stop) == ("~", "stop", 257)
    assert answer.token_ids == [ord("~"), 257]


def test_cached_tokens_are_told(idle):
    prompt = "c" * 40
    idle.generate(prompt, max_tokens=1)
    assert idle.generate(prompt, max_tokens=1).cached_tokens >= 36
    wait_until(lambda: idle.stats.running == 0)
    idle.flush_cache()
    assert idle.generate(prompt, max_tokens=1).cached_tokens == 0


def test_parts_of_a_stream_join_to_the_answer(engine):
    prompts = ["a", "\n"]
    answers = engine.generate(prompts, {"max_new_tokens": 6, "n": 2})
    parts = list(engine.generate(prompts, {"max_new_tokens": 6, "n": 2}, stream=True, rid="mine"))
    assert {part.rid for part in parts} == {"mine"}
    for prompt, answer in enumerate(answers):
        for number, choice in enumerate(answer.choices):
            mine = [p for p in parts if (p.prompt, p.choice) == (prompt, number)]
            assert "".join(part.text for part in mine) == choice.text
            assert [i for part in mine for i in part.token_ids] == choice.token_ids
            assert [part.finish_reason for part in mine][:-1] == [None] * (len(mine) - 1)
            assert mine[-1].finish_reason == "length" and mine[-1].completion_tokens == 6


def test_probabilities_are_told_alike_by_every_kind_of_call(idle):
    chat = [{"role": "user", "content": "a"}]
    asked = [
        idle.generate("xa", max_tokens=3, logprobs=2),
        idle.generate("xa", {"max_new_tokens": 3}, return_logprob=True, top_logprobs_num=2),
        idle.chat(chat, max_tokens=3, logprobs=True, top_logprobs=2),
    ]
    for answer in asked:
        assert [score.token_id for score in answer.logprobs] == answer.token_ids
        assert {len(score.top) for score in answer.logprobs} == {2}
    assert idle.generate("a", max_tokens=3).logprobs == []
    parts = list(idle.generate("xa", max_tokens=3, logprobs=2, stream=True))
    assert [score for part in parts for score in part.logprobs] == asked[0].logprobs


def test_a_prompt_that_comes_back_and_the_best_of_more(idle):
    answer = idle.generate("xya", echo=True, logprobs=1, max_tokens=2)
    assert (answer.text, answer.token_ids) == ("xyabc", list(b"bc"))
    assert [score.token_id for score in answer.prompt_logprobs] == list(b"ya")
    alone = idle.generate("xya", echo=True, max_tokens=0)
    assert (alone.text, alone.token_ids, alone.completion_tokens) == ("xya", [], 0)
    parts = list(idle.generate("xya", echo=True, max_tokens=2, stream=True))
    assert "".join(part.text for part in parts) == "xyabc"
    assert [i for part in parts for i in part.token_ids] == list(b"bc")
    (best,) = idle.generate(["a"], best_of=3, n=2, max_tokens=2)
    assert [choice.text for choice in best.choices] == ["bc", "bc"] and best.logprobs == []


def test_texts_and_ids(engine):
    assert engine.tokenize("hé") == list("hé".encode())
    assert engine.detokenize(list("hé".encode())) == "hé"
    assert engine.info.model_name == "tiny"


BAD = [
    ("/v1/completions", {"prompt": "a", "temprature": 1}),
    ("/v1/completions", {"prompt": "a", "temperature": -1}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0}),
    ("/v1/completions", {"prompt": [97, 300]}),
    ("/v1/completions", {"prompt": []}),
    ("/v1/completions", {"prompt": ["a", [1]]}),
    ("/v1/completions", {"prompt": "a", "stop": ["b"] * 99}),
    ("/v1/completions", {"prompt": "a", "model": "other"}),
    ("/v1/completions", {"prompt": "a" * 999}),
    ("/generate", {"text": "a", "sampling_params": {"max_tokens": 3}}),
    ("/generate", {"text": "a", "sampling_params": {"top_p": 7}}),
    ("/generate", {"text": "a", "sampling_params": [{}]}),
    ("/generate", {"input_ids": [97, "a"], "sampling_params": {}}),
    ("/v1/chat/completions", {"messages": [{"role": "bad", "content": "x"}]}),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 1000}),
    ("/v1/chat/completions", {"messages": "hello"}),
]


@pytest.fixture(scope="module")
def http(folder):
    with running(config_for(folder)) as server, server.http() as client:
        yield client


def call(engine, path: str, body: dict) -> None:
    words = dict(body)
    if path == "/v1/chat/completions":
        engine.chat(words.pop("messages"), **words)
    else:
        name = "prompt" if path == "/v1/completions" else next(iter(words))
        engine.generate(**{name.replace("text", "prompt"): words.pop(name)}, **words)


@pytest.mark.parametrize("path, body", BAD)
def test_refusals_have_the_texts_of_the_server(engine, http, path, body):
    answer = http.post(path, json=body)
    told = answer.json()["error"]
    with pytest.raises(CallRefused) as raised:
        call(engine, path, body)
    error = raised.value
    assert (error.status, str(error)) == (answer.status_code, told["message"])
    assert (error.type, error.param, error.code) == (told["type"], told["param"], told["code"])


def test_what_json_cannot_say_is_refused_too(engine):
    with pytest.raises(CallRefused, match="surrogate"):
        engine.generate("\ud83d")
    with pytest.raises(CallRefused, match="temperature is nan"):
        engine.generate("a", temperature=float("nan"))
    with pytest.raises(CallRefused, match="prompt: Expected"):
        engine.generate(b"a")
    with pytest.raises(CallRefused, match="cannot be given to a chat template"):
        engine.chat([{"role": "user", "content": "x", "more": object()}])


def test_one_of_prompt_and_input_ids(engine):
    for words in ({}, {"prompt": "a", "input_ids": [97]}):
        with pytest.raises(CallRefused, match="send one of prompt and input_ids"):
            engine.generate(**words)
    with pytest.raises(CallRefused, match="one text a call"):
        engine.tokenize(["a", "b"])
    with pytest.raises(CallRefused, match="one list a call"):
        engine.detokenize([[97], [98]])


def test_a_refused_stream_is_told_before_any_part(engine):
    with pytest.raises(CallRefused, match="top_p is 7"):
        engine.generate("a", top_p=7, stream=True)


def test_many_threads_call_at_once(idle):
    prompts = [chr(ord("a") + n % 20) * (1 + n) for n in range(40)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda prompt: idle.generate(prompt, max_tokens=3), prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        first = ord(prompt[-1]) + 1
        assert answer.text == "".join(map(chr, range(first, first + 3)))


def test_abort_ends_a_call_with_what_it_has(idle):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(idle.generate, "a", max_tokens=200, rid="long")
        wait_until(lambda: idle.stats.running == 1)
        with pytest.raises(CallRefused, match="the cache is in use: 1 requests run"):
            idle.flush_cache()
        assert idle.abort("other") == 0
        assert idle.abort("long") == 1
        answer = waiting.result(10)
    assert answer.finish_reason == "abort" and answer.completion_tokens < 200
    stream = idle.generate("a", max_tokens=200, stream=True)
    next(stream)
    assert idle.abort() == 1
    assert [part.finish_reason for part in stream][-1] == "abort"


def test_a_rid_in_use_is_refused(idle):
    with idle.generate("a", max_tokens=200, stream=True, rid="twice") as stream:
        next(stream)
        with pytest.raises(CallRefused, match="rid 'twice' is in use"):
            idle.generate("a", rid="twice")


@pytest.mark.parametrize("how", ["close", "with", "forget"])
def test_a_stream_that_is_left_is_aborted(idle, how):
    stream = idle.generate("a", max_tokens=250, stream=True)
    assert next(stream).text == "b"
    if how == "with":
        with stream:
            pass
    elif how == "close":
        stream.close()
        assert list(stream) == []
    else:
        del stream
        gc.collect()
    wait_until(lambda: idle.stats.running == 0)


def test_a_stream_goes_on_while_nobody_reads(idle):
    stream = idle.generate("a", max_tokens=20, stream=True)
    wait_until(lambda: idle.stats.running == 0 and idle.stats.steps > 0)
    assert sum(len(part.token_ids) for part in stream) == 20


def test_an_engine_that_failed_is_told_and_comes_back(folder):
    with Engine(config_for(folder), builder=BUILDER) as engine:
        with pytest.raises(CallFailed, match="the engine process died") as raised:
            engine.generate([97, 2])  # the scripted engine kills itself
        assert raised.value.status == 500
        with pytest.raises(CallFailed, match="restarting") as raised:
            engine.generate("a")
        assert raised.value.code == "engine_unavailable"

        def answered() -> bool:
            try:
                return engine.generate("a", max_tokens=1).text == "b"
            except CallFailed:
                return False

        wait_until(answered)
