"""Probabilities in the words of each protocol; the scripted engine tells them by token id."""

from __future__ import annotations

import json

import pytest


def ask(http, path, **body):
    answer = http.post(path, json={"temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer


def events(answer):
    lines = [line[6:] for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def logprob(character):
    return pytest.approx(-ord(character) / 100)


def test_chat(http):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    (choice,) = ask(http, "/v1/chat/completions", **body, logprobs=True, top_logprobs=2).json()[
        "choices"
    ]
    content = choice["logprobs"]["content"]
    written = bytes(byte for one in content for byte in one["bytes"])
    assert written.decode(errors="replace") == choice["message"]["content"]
    first = content[0]
    assert first["logprob"] == pytest.approx(-first["bytes"][0] / 100)
    assert [one["bytes"][0] for one in first["top_logprobs"]] == [
        first["bytes"][0] - n for n in (1, 2)
    ]
    (plain,) = ask(http, "/v1/chat/completions", **body).json()["choices"]
    assert plain["logprobs"] is None


def test_streamed_chat_tells_each_token_once(http):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "logprobs": True}
    whole = ask(http, "/v1/chat/completions", **body).json()["choices"][0]
    parts = [
        e["choices"][0] for e in events(ask(http, "/v1/chat/completions", **body, stream=True))
    ]
    told = [one for part in parts if part["logprobs"] for one in part["logprobs"]["content"]]
    assert told == whole["logprobs"]["content"]
    assert all(one["top_logprobs"] == [] for one in told)


def test_completion(http):
    (choice,) = ask(http, "/v1/completions", prompt="abc", max_tokens=3, logprobs=1).json()[
        "choices"
    ]
    assert choice["text"] == "def"
    assert choice["logprobs"]["tokens"] == ["d", "e", "f"]
    assert choice["logprobs"]["token_logprobs"] == [logprob(c) for c in "def"]
    assert choice["logprobs"]["top_logprobs"] == [
        {"c": logprob("c")},
        {"d": logprob("d")},
        {"e": logprob("e")},
    ]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]


@pytest.mark.parametrize("prompt", ["abc", [97, 98, 99]])
def test_echo(http, prompt):
    body = {"prompt": prompt, "max_tokens": 2, "logprobs": 0, "echo": True}
    (choice,) = ask(http, "/v1/completions", **body).json()["choices"]
    assert choice["text"] == "abcde"
    assert choice["logprobs"]["tokens"] == list("abcde")
    assert choice["logprobs"]["token_logprobs"] == [None, *(logprob(c) for c in "bcde")]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]
    parts = [e["choices"][0] for e in events(ask(http, "/v1/completions", **body, stream=True))]
    assert "".join(part["text"] for part in parts) == "abcde"
    told = [number for part in parts for number in part["logprobs"]["token_logprobs"]]
    assert told == choice["logprobs"]["token_logprobs"]
    offsets = [number for part in parts for number in part["logprobs"]["text_offset"]]
    assert offsets == choice["logprobs"]["text_offset"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_alone_is_scored(http, stream):
    body = {"prompt": "abc", "max_tokens": 0, "logprobs": 0, "echo": True, "stream": stream}
    answer = ask(http, "/v1/completions", **body)
    parts = events(answer) if stream else [answer.json()]
    choices = [part["choices"][0] for part in parts]
    assert "".join(choice["text"] for choice in choices) == "abc"
    told = [n for c in choices if c["logprobs"] for n in c["logprobs"]["token_logprobs"]]
    assert told == [None, logprob("b"), logprob("c")]
    assert stream or answer.json()["usage"]["completion_tokens"] == 0


def test_the_most_probable_of_those_drawn_are_told(http):
    body = {"prompt": "%", "max_tokens": 1, "temperature": 1, "seed": 3}
    drawn = ask(http, "/v1/completions", **body, n=8).json()["choices"]
    best = ask(http, "/v1/completions", **body, best_of=8, n=2).json()
    letters = sorted(choice["text"] for choice in drawn)
    assert len(set(letters)) > 2
    assert [choice["text"] for choice in best["choices"]] == letters[:2]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 8
    assert all(choice["logprobs"] is None for choice in best["choices"])


def test_everything_past_a_stop_string_is_cut_alike(http):
    body = {"prompt": "abc", "max_tokens": 9, "logprobs": 0, "stop": "fg"}
    (choice,) = ask(http, "/v1/completions", **body).json()["choices"]
    assert (choice["text"], choice["matched_stop"]) == ("de", "fg")
    assert choice["logprobs"]["tokens"] == ["d", "e", "f", "g"]


def test_native(http):
    params = {"max_new_tokens": 2, "temperature": 0}
    body = {"text": "abc", "sampling_params": params, "return_logprob": True}
    told = http.post("/generate", json={**body, "return_text_in_logprobs": True}).json()
    assert told["meta_info"]["output_token_logprobs"] == [
        [logprob("d"), 100, "d"],
        [logprob("e"), 101, "e"],
    ]
    assert told["meta_info"]["input_token_logprobs"] == []
    assert "output_top_logprobs" not in told["meta_info"]
    body |= {"top_logprobs_num": 1, "logprob_start_len": 0}
    meta = http.post("/generate", json=body).json()["meta_info"]
    assert meta["input_token_logprobs"] == [
        [None, 97, None],
        [logprob("b"), 98, None],
        [logprob("c"), 99, None],
    ]
    assert meta["input_top_logprobs"] == [
        None,
        [[logprob("a"), 97, None]],
        [[logprob("b"), 98, None]],
    ]
    assert meta["output_top_logprobs"] == [[[logprob("c"), 99, None]], [[logprob("d"), 100, None]]]
    meta = http.post("/generate", json={**body, "logprob_start_len": 2}).json()["meta_info"]
    assert meta["input_token_logprobs"] == [[logprob("c"), 99, None]]
    assert (
        "input_token_logprobs"
        not in http.post("/generate", json={"text": "abc", "sampling_params": params}).json()[
            "meta_info"
        ]
    )


def test_a_scored_prompt_is_computed_anew_and_cached_for_others(http):
    prompt = "the same prompt, long enough to fill some pages"
    body = {"prompt": prompt, "max_tokens": 1}
    ask(http, "/v1/completions", **body)
    scored = {**body, "logprobs": 0, "echo": True}
    first, again = (ask(http, "/v1/completions", **scored).json() for _ in range(2))
    assert first["choices"] == again["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    last = ask(http, "/v1/completions", **body).json()
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_choices_share_the_scores_of_their_prompt(http):
    body = {"prompt": ["abc", "xyz"], "max_tokens": 1, "n": 2, "logprobs": 0, "echo": True}
    choices = ask(http, "/v1/completions", **body).json()["choices"]
    assert [choice["logprobs"]["tokens"][:3] for choice in choices] == [
        list("abc"),
        list("abc"),
        list("xyz"),
        list("xyz"),
    ]
    assert all(len(choice["logprobs"]["token_logprobs"]) == 4 for choice in choices)


def test_prompt_logprobs_in_vllms_form(http):
    body = {"prompt": ["abc", "xy"], "max_tokens": 1, "n": 2, "prompt_logprobs": 1}
    choices = ask(http, "/v1/completions", **body).json()["choices"]
    told = {"logprob": logprob("b"), "rank": 2, "decoded_token": "b"}
    first, second, _ = choices[0]["prompt_logprobs"]
    assert first is None and second["98"] == told
    assert second["97"] == {"logprob": logprob("a"), "rank": 1, "decoded_token": "a"}
    assert [len(choice["prompt_logprobs"]) for choice in choices] == [3, 3, 2, 2]
    assert choices[1]["prompt_logprobs"] == choices[0]["prompt_logprobs"]
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    answer = ask(http, "/v1/chat/completions", **chat, prompt_logprobs=0).json()
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert "prompt_logprobs" not in ask(http, "/v1/chat/completions", **chat).json()


def test_prompt_logprobs_are_not_streamed(http):
    body = {"prompt": "abc", "max_tokens": 1, "prompt_logprobs": 1, "stream": True}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt_logprobs"
