from __future__ import annotations

import json

import openai
import pytest


def ask(client, prompt, **fields):
    return client.completions.create(model="tiny", prompt=prompt, **{"max_tokens": 8, **fields})


def texts(answer):
    return [choice.text for choice in answer.choices]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("abc", ["defghijk"]),
        (["abc", "x"], ["defghijk", "yzabcdef"]),
        ([97, 98], ["cdefghij"]),
        ([[97], [48]], ["bcdefghi", "12345678"]),
    ],
)
def test_each_form_of_a_prompt(client, prompt, expected):
    assert texts(ask(client, prompt)) == expected


def test_choices_of_several_prompts_come_in_order(client):
    answer = ask(client, ["a", "0"], n=2, max_tokens=2)
    assert texts(answer) == ["bc", "bc", "12", "12"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.prompt_tokens == 2 and answer.usage.completion_tokens == 8


def test_sixteen_tokens_by_default(client):
    answer = client.completions.create(model="tiny", prompt="a")
    assert answer.usage.completion_tokens == 16


def test_the_default_length_is_cut_to_the_room(client):
    answer = client.completions.create(model="tiny", prompt="a" * 250)
    assert answer.usage.completion_tokens == 6


def test_a_stop_string_across_tokens_is_cut_and_counted(client):
    answer = ask(client, "abc", max_tokens=20, stop=["ghi", "zz"])
    assert texts(answer) == ["def"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].model_extra["matched_stop"] == "ghi"
    assert answer.usage.completion_tokens == 6


def test_no_part_of_a_stop_string_is_streamed(client):
    chunks = list(ask(client, "abc", max_tokens=20, stop="ghi", stream=True))
    assert "".join(texts_of(chunks)) == "def"
    assert chunks[-1].choices[0].finish_reason == "stop"


def texts_of(chunks):
    return [choice.text for chunk in chunks for choice in chunk.choices]


def test_held_text_that_is_no_stop_string_comes_at_the_end(client):
    chunks = list(ask(client, "abc", max_tokens=4, stop="ghi", stream=True))
    assert "".join(texts_of(chunks)) == "defg"
    assert chunks[-1].choices[0].finish_reason == "length"


def test_stop_token_ids_end_without_their_text(client):
    answer = ask(client, "abc", extra_body={"stop_token_ids": [ord("f")]})
    assert texts(answer) == ["de"]
    assert answer.choices[0].model_extra["matched_stop"] == ord("f")


def test_ignore_eos_goes_on_after_the_end_token(client):
    assert texts(ask(client, "}", max_tokens=5)) == ["~"]
    answer = ask(client, "}", max_tokens=5, extra_body={"ignore_eos": True})
    assert texts(answer) == ["~abc"] and answer.choices[0].finish_reason == "length"


def test_the_settings_reach_the_engine(client, record):
    extra = {"top_k": 5, "min_p": 0.25}
    ask(client, "sent on", temperature=0.5, top_p=0.75, seed=-3, n=2, extra_body=extra)
    lines = [json.loads(line) for line in record.read_text().splitlines()[-2:]]
    expected = {"temperature": 0.5, "top_k": 5, "top_p": 0.75, "min_p": 0.25, "seed": -3}
    for line in lines:
        assert {name: line[name] for name in expected} == expected
        assert line["max_tokens"] == 8
    assert [line["draw"] for line in lines] == [0, 1]


def test_a_seed_repeats_its_draws_and_choices_differ(client):
    prompt, fields = "%" * 9, {"n": 8, "temperature": 1, "max_tokens": 1}
    first, again = (texts(ask(client, prompt, seed=11, **fields)) for _ in range(2))
    assert first == again and len(set(first)) > 1
    assert first != texts(ask(client, prompt, seed=12, **fields))


def test_calls_without_a_seed_get_different_ones(client, record):
    for _ in range(2):
        ask(client, "a")
    first, second = (json.loads(line)["seed"] for line in record.read_text().splitlines()[-2:])
    assert first != second


def test_a_streamed_usage(client):
    chunks = list(ask(client, ["ab", "c"], stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.prompt_tokens == 3 and chunks[-1].usage.completion_tokens == 16
    assert chunks[-1].choices == []


def test_the_models_list(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "anychip"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
