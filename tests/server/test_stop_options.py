"""How an answer's end is found and told: stop_regex, no_stop_trim, skip_special_tokens."""

from __future__ import annotations

import json

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def complete(http, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 20, **fields}
    answer = http.post(COMPLETIONS, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(http, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 20, "stream": True, **fields}
    lines = http.post(COMPLETIONS, json=body).text.strip().split("\n\n")[:-1]
    return [json.loads(line[6:])["choices"][0]["text"] for line in lines]


ENDS = [
    ({"stop_regex": "f.h"}, "bcde", "f.h", 7),
    ({"stop_regex": ["zz", "[x-z]|d+e"]}, "bc", "[x-z]|d+e", 4),
    ({"stop_regex": "f.h", "stop": ["gh"]}, "bcde", "f.h", 7),
    ({"stop_regex": "f.h", "stop": "ef"}, "bcd", "ef", 5),
    ({"stop_regex": "f.h", "no_stop_trim": True}, "bcdefgh", "f.h", 7),
    ({"stop": "ef", "include_stop_str_in_output": True}, "bcdef", "ef", 5),
    ({"stop_regex": "ff", "max_tokens": 3}, "bcd", None, 3),
]


@pytest.mark.parametrize(("fields", "text", "matched", "tokens"), ENDS)
def test_an_answer_ends_alike_whole_and_streamed(http, fields, text, matched, tokens):
    answer = complete(http, "a", **fields)
    choice = answer["choices"][0]
    assert (choice["text"], choice.get("matched_stop")) == (text, matched)
    assert answer["usage"]["completion_tokens"] == tokens
    assert "".join(streamed(http, "a", **fields)) == text


def test_every_choice_searches_for_itself(http):
    answer = complete(http, "a", stop_regex="d.f", n=3)
    assert [choice["text"] for choice in answer["choices"]] == ["bc"] * 3


def test_what_may_become_a_match_is_held_back(http):
    parts = streamed(http, "a", stop_regex="d[a-h]*z", max_tokens=8)
    assert parts[:2] == ["b", "c"] and "".join(parts) == "bcdefghi"
    assert "defgh" in parts[-1] or "defgh" in parts[-2]


def test_special_tokens_and_the_stop_token_are_shown_where_it_is_asked_for(http):
    assert complete(http, "}")["choices"][0]["text"] == "~"
    assert complete(http, "}", skip_special_tokens=False)["choices"][0]["text"] == "~"
    assert complete(http, "}", no_stop_trim=True)["choices"][0]["text"] == "~"
    both = {"no_stop_trim": True, "skip_special_tokens": False}
    for more in ({}, {"spaces_between_special_tokens": False}, {"stop": ["never"]}):
        assert complete(http, "}", **both, **more)["choices"][0]["text"] == "~<|im_end|>"


def test_the_native_endpoint_takes_them_too(http):
    params = {"max_new_tokens": 20, "stop_regex": ["f.h"], "no_stop_trim": True}
    answer = http.post("/generate", json={"text": "a", "sampling_params": params}).json()
    assert answer["text"] == "bcdefgh"
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "f.h"}


REFUSED = [
    ({"stop_regex": "a(?=b)"}, "stop_regex", "stop_regex[0]: (? with look-around"),
    ({"stop_regex": ["b", "a*"]}, "stop_regex", "stop_regex[1]: the pattern 'a*' matches the em"),
    ({"stop_regex": ["b"] * 33}, "stop_regex", "33 patterns; at most 32"),
    ({"stop_regex": "(a{1,99}){1,99}"}, "stop_regex", "at most 512"),
    (
        {"no_stop_trim": False, "include_stop_str_in_output": True},
        "include_stop_str_in_output",
        "opposite things",
    ),
]


@pytest.mark.parametrize(("fields", "param", "text"), REFUSED)
def test_what_cannot_be_searched_for_is_refused(http, fields, param, text):
    error = http.post(COMPLETIONS, json={"prompt": "a", **fields}).json()["error"]
    assert error["param"] == param and text in error["message"]
