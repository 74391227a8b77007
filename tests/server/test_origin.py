"""cache_salt, extra_key and priority: what they set apart, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anychip.server.origin import MAX_PART_CHARS, namespace_of
from served import config_for, running

parts = (
    st.none() | st.text('"\\\\{}:,x\u00e9', max_size=5) | st.sampled_from(['","salt":"', "null"])
)
inputs = st.tuples(parts, parts, parts)


@given(inputs, inputs)
def test_two_different_inputs_never_give_one_namespace(one, other):
    assert (namespace_of(*one) == namespace_of(*other)) is (one == other)


def test_nothing_given_is_the_common_namespace_and_all_given_is_short():
    assert namespace_of(None, None, None) == ""
    longest = "\x00" * MAX_PART_CHARS
    assert len(namespace_of("x" * 64, longest, longest)) < 4096


CALLS = {
    "/v1/completions": {"prompt": "a prefix to find again", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
    "/generate": {"text": "a prefix to find again", "sampling_params": {"max_new_tokens": 1}},
}


def cached(http, path, **fields):
    answer = http.post(path, json={**CALLS[path], **fields})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    if path == "/generate":
        return body["meta_info"]["cached_tokens"]
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("path", CALLS)
def test_prefixes_are_shared_inside_one_namespace_alone(http, path):
    http.post("/flush_cache")
    scopes = [
        {},
        {"cache_salt": "s"},
        {"extra_key": "s"},
        {"cache_salt": "s", "extra_key": "s"},
        {"cache_salt": "ss"},
        {"cache_salt": '","key":"s'},
    ]
    assert [cached(http, path, **scope) for scope in scopes] == [0] * len(scopes)
    again = [cached(http, path, **scope) for scope in scopes]
    assert min(again) == max(again) > 0
    assert cached(http, path, cache_salt="s", priority=0, rid=None) == again[0]


def test_the_engine_is_told(folder, tmp_path):
    record = tmp_path / "record"
    options = {"record": str(record)}
    config = config_for(folder, chip_option=options, schedule_policy="priority")
    with running(config) as server, server.http() as http:
        for path in CALLS:
            cached(http, path, cache_salt="a", extra_key="b", priority=-3, rid="told" + path)
    told = [json.loads(line) for line in record.open()]
    assert [line["id"].partition("/")[0] for line in told] == ["told"] * len(CALLS)
    for line in told:
        assert line["namespace"] == '{"salt":"a","key":"b"}' and line["priority"] == -3


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cache_salt": ""}, "cache_salt has 0 characters; send 1 to 256"),
        ({"extra_key": "x" * 257}, "extra_key has 257 characters"),
        ({"cache_salt": 5}, "cache_salt: Expected `str | null`"),
        ({"extra_key": ["a"]}, "extra_key: Expected `str | null`"),
        ({"priority": 2**31}, "priority is 2147483648"),
        ({"priority": -(2**40)}, "it must be -2147483648 to 2147483647"),
        ({"priority": 1.5}, "priority: Expected `int | null`"),
        ({"priority": "high"}, "priority: Expected `int | null`"),
    ],
)
def test_what_is_refused(http, path, fields, text):
    answer = http.post(path, json={**CALLS[path], **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert text in error["message"] and error["param"] == next(iter(fields))
