from __future__ import annotations

import json
import threading

import pytest

from served import wait_until


def generate(http, **body):
    answer = http.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def test_generate_answers_like_sglang(http):
    answer = generate(http, text="abc", sampling_params={"max_new_tokens": 4}, rid="mine").json()
    assert answer["text"] == "defg" and answer["output_ids"] == [100, 101, 102, 103]
    meta = answer["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (3, 4)
    assert meta["num_retractions"] == 0 and meta["e2e_latency"] > 0


def test_generate_takes_ids_and_128_tokens_by_default(http):
    answer = generate(http, input_ids=[97]).json()
    assert answer["meta_info"]["completion_tokens"] == 128


def test_lists_and_n_answer_with_a_list(http):
    params = {"max_new_tokens": 2, "n": 2}
    answers = generate(http, text=["a", "0"], sampling_params=params, rid="many").json()
    assert [answer["text"] for answer in answers] == ["bc", "bc", "12", "12"]
    assert answers[3]["meta_info"]["id"] == "many_3"
    assert len(generate(http, input_ids=[[97]], sampling_params=params).json()) == 2


def test_a_stream_is_cumulative(http):
    params = {"max_new_tokens": 3}
    lines = generate(http, text="abc", sampling_params=params, stream=True).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    texts = [json.loads(line[6:])["text"] for line in lines[:-2]]
    assert texts == ["d", "de", "def"]


def test_a_stop_string_is_named(http):
    params = {"max_new_tokens": 9, "stop": "gh"}
    answer = generate(http, text="abc", sampling_params=params).json()
    assert answer["text"] == "def"
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "gh"}


def test_tokenize_and_back(http):
    answer = http.post("/tokenize", json={"prompt": "abc"}).json()
    assert answer == {"tokens": [97, 98, 99], "count": 3, "max_model_len": 256}
    assert http.post("/v1/tokenize", json={"text": ["a", "bc"]}).json()["count"] == [1, 2]
    back = http.post("/detokenize", json={"tokens": [97, 257, 98]}).json()
    assert back["text"] == "ab" == back["prompt"]
    whole = {"tokens": [[97, 257]], "skip_special_tokens": False}
    assert http.post("/v1/detokenize", json=whole).json()["text"] == ["a<|im_end|>"]


def test_long_texts_are_encoded_too(http):
    answer = http.post("/tokenize", json={"prompt": "a" * 5000}).json()
    assert answer["count"] == 5000


def test_flush_empties_the_cache(http):
    prompt = {"text": "flush me please", "sampling_params": {"max_new_tokens": 1}}
    generate(http, **prompt)
    assert generate(http, **prompt).json()["meta_info"]["cached_tokens"] > 0
    assert http.post("/flush_cache").json()["success"] is True
    assert generate(http, **prompt).json()["meta_info"]["cached_tokens"] == 0


def test_abort_needs_the_exact_id(slow):
    with slow.http() as http:
        answers = {}
        threads = [start(slow, answers, rid) for rid in ("req-1", "req-10")]
        wait_until(lambda: len(slow.service.live) == 2)
        assert http.post("/abort_request", json={"rid": "req-"}).status_code == 404
        assert http.post("/abort_request", json={"rid": "req-1"}).json() == {"aborted": 1}
        threads[0].join(10)
        assert answers["req-1"]["meta_info"]["finish_reason"]["type"] == "abort"
        assert list(slow.service.live) == [(None, "req-10")]
        assert http.post("/abort_request", json={"abort_all": True}).json() == {"aborted": 1}
        threads[1].join(10)
        again = {"text": "0", "rid": "req-10", "sampling_params": {"max_new_tokens": 3}}
        assert http.post("/generate", json=again).json()["text"] == "123"  # the id is free at once
        wait_until(lambda: slow.service.client.stats.running == 0)


def start(server, answers, rid):
    def run():
        body = {"text": "a", "rid": rid, "sampling_params": {"max_new_tokens": 250}}
        with server.http() as http:
            answers[rid] = http.post("/generate", json=body).json()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_rid_in_use_is_refused_and_the_first_is_unharmed(slow):
    answers = {}
    first = start(slow, answers, "twice")
    wait_until(lambda: (None, "twice") in slow.service.live)
    with slow.http() as http:
        body = {"text": "a", "rid": "twice", "sampling_params": {"max_new_tokens": 2}}
        refused = http.post("/generate", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "duplicate_rid"
        wait_until(lambda: slow.service.client.stats.running == 1)
        assert http.post("/flush_cache").json()["error"]["code"] == "busy"
        first.join(20)
        assert answers["twice"]["meta_info"]["completion_tokens"] == 250
        assert http.post("/generate", json=body).status_code == 200


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
def test_an_abort_in_mid_stream_does_not_look_like_success(slow, path):
    messages = [{"role": "user", "content": "hi"}]
    body = {
        "/v1/completions": {"prompt": "a", "max_tokens": 200},
        "/generate": {"text": "a", "sampling_params": {"max_new_tokens": 200}},
    }.get(path, {"messages": messages, "max_tokens": 200})
    with slow.http() as http, slow.http() as other:
        body |= {"stream": True, "rid": "cut"}
        with http.stream("POST", path, json=body) as answer:
            lines = (line for line in answer.iter_lines() if line)
            next(lines)
            assert other.post("/abort_request", json={"rid": "cut"}).json() == {"aborted": 1}
            *_, last, done = lines
    assert done == "data: [DONE]"
    event = json.loads(last[6:])
    if path == "/generate":
        assert event["meta_info"]["finish_reason"]["type"] == "abort"
    else:
        assert event["choices"][0]["finish_reason"] == "abort"
