from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import openai
import pytest

from anychip.server.responses_protocol import ResponsesRequest
from anychip.server.sampling import SHARED
from served import bearer, config_for, running, wait_until

FACE = "\U0001f642"
PROMPT_TOKENS = 20  # of the user's "hi": one a byte and one a special token
HI = [{"role": "user", "content": "hi"}]
UNIQUE = {"type": "array", "uniqueItems": True}
TEXT_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.incomplete",
]


@pytest.fixture(scope="module")
def kept(folder):
    """A server that keeps three responses of a tenant, steps of five milliseconds."""
    options = {"step_s": "0.005", "pages": "512"}
    config = config_for(folder, chip_option=options, max_stored_responses=3, context_length=1024)
    with running(config) as server:
        yield server


@pytest.fixture(scope="module")
def slowly(kept):
    with openai.OpenAI(base_url=kept.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client, given="hi", **fields):
    fields = {"model": "tiny", "max_output_tokens": 8, **fields}
    return client.responses.create(input=given, **fields)


def refusal(client, status=openai.BadRequestError, **fields):
    with pytest.raises(status) as caught:
        ask(client, **fields)
    return caught.value.body


def names(events):
    """The events' types, a run of equal ones once; their numbers must count from 0."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    return [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]


def test_an_input_is_answered(client):
    answer = ask(client, metadata={"a": "b"}, instructions=None)
    assert answer.id.startswith("resp_") and answer.object == "response"
    assert answer.output_text == FACE + "abcd"
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert (answer.model, answer.metadata, answer.error) == ("tiny", {"a": "b"}, None)
    assert answer.usage.input_tokens == PROMPT_TOKENS and answer.usage.output_tokens == 8
    assert answer.usage.total_tokens == PROMPT_TOKENS + 8
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    (item,) = answer.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "incomplete")


def test_an_answer_that_stops_is_completed(client):
    answer = ask(client, extra_body={"chat_template_kwargs": {"ending": "}"}})
    assert (answer.output_text, answer.status) == ("~", "completed")
    assert answer.completed_at >= answer.created_at and answer.output[0].status == "completed"
    assert ask(client, extra_body={"stop": "c"}).output_text == FACE + "ab"


def test_a_stream_tells_the_same_in_typed_events(client):
    events = list(ask(client, stream=True))
    assert names(events) == TEXT_EVENTS
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == FACE + "abcd" and len(deltas) == 5
    assert events[-1].response.output_text == FACE + "abcd"
    assert events[0].response.status == "in_progress" and events[0].response.output == []
    stored = client.responses.retrieve(events[0].response.id)
    assert stored == events[-1].response


def test_logprobs_go_with_the_text(client):
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    answer = ask(client, **wanted)
    scored = answer.output[0].content[0].logprobs
    assert b"".join(bytes(one.bytes) for one in scored).decode() == FACE + "abcd"
    assert {len(one.top_logprobs) for one in scored} == {2} and answer.top_logprobs == 2
    events = list(ask(client, stream=True, **wanted))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert [one.logprob for event in deltas for one in event.logprobs] == [
        one.logprob for one in scored
    ]
    assert len(ask(client).output[0].content[0].logprobs) == 0


def test_every_sampling_field_of_chats_is_taken_but_n(client):
    fields = {field.name for field in msgspec.structs.fields(ResponsesRequest)}
    assert set(SHARED) - fields == {"n"}
    kept = {"stop_regex": "[b-d]", "no_stop_trim": True}
    assert ask(client, extra_body=kept).output_text == FACE + "ab"


def test_the_clients_own_accumulation_agrees(client):
    with client.responses.stream(model="tiny", input="hi", max_output_tokens=6) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(texts) == FACE + "ab"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (HI, HI),
        ([{"type": "message", **HI[0]}], HI),
        ([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], HI),
        ([{"role": "developer", "content": "x"}, *HI], [{"role": "system", "content": "x"}, *HI]),
        (
            [
                {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": None},
                {
                    "type": "message",
                    "id": "msg",
                    "status": "completed",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "a", "annotations": [], "logprobs": None},
                        {"type": "refusal", "refusal": "b"},
                    ],
                },
                *HI,
            ],
            [{"role": "assistant", "content": "ab"}, *HI],
        ),
    ],
)
def test_items_become_the_chats_messages(client, given, said):
    chat = client.chat.completions.create(model="tiny", messages=said, max_tokens=2)
    assert ask(client, given).usage.input_tokens == chat.usage.prompt_tokens


def test_a_conversation_goes_on_from_a_stored_response(client):
    first = ask(client, instructions="be brief")
    second = ask(client, "more", previous_response_id=first.id, instructions="be long")
    said = [
        {"role": "system", "content": "be long"},  # the first call's instructions are gone
        *HI,
        {"role": "assistant", "content": FACE + "abcd"},
        {"role": "user", "content": "more"},
    ]
    chat = client.chat.completions.create(model="tiny", messages=said, max_tokens=2)
    assert second.usage.input_tokens == chat.usage.prompt_tokens
    assert second.previous_response_id == first.id
    third = ask(client, "on", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens


def test_a_stored_response_is_retrieved_and_deleted(client):
    answer = ask(client)
    assert client.responses.retrieve(answer.id) == answer
    client.responses.delete(answer.id)
    for ask_for in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError) as caught:
            ask_for(answer.id)
        assert caught.value.code == "response_not_found"
    body = refusal(client, openai.NotFoundError, previous_response_id=answer.id)
    assert body["param"] == "previous_response_id" and answer.id in body["message"]


def test_what_is_not_to_be_stored_is_not(client):
    answer = ask(client, store=False)
    assert answer.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_the_response_used_longest_ago_gives_way(slowly):
    first, second, third = (ask(slowly, max_output_tokens=1) for _ in range(3))
    slowly.responses.retrieve(first.id)
    ask(slowly, max_output_tokens=1)
    with pytest.raises(openai.NotFoundError, match="a tenant keeps 3 of together"):
        slowly.responses.retrieve(second.id)
    assert slowly.responses.retrieve(first.id) and slowly.responses.retrieve(third.id)


def test_a_background_response_is_queued_and_found_when_it_is_done(slowly):
    answer = ask(slowly, background=True)
    assert answer.status == "queued" and answer.background and answer.output == []
    wait_until(lambda: slowly.responses.retrieve(answer.id).status == "incomplete")
    assert slowly.responses.retrieve(answer.id).output_text == FACE + "abcd"
    with pytest.raises(openai.BadRequestError, match="stream: true"):
        slowly.responses.retrieve(answer.id, stream=True)
    assert slowly.responses.cancel(answer.id).status == "incomplete"  # it had ended


def test_a_background_stream_can_be_left_and_taken_up_again(slowly):
    with ask(slowly, background=True, stream=True, max_output_tokens=40) as stream:
        seen = [event for event, _ in zip(stream, range(5), strict=False)]
    name = seen[0].response.id
    rest = slowly.responses.retrieve(name, stream=True, starting_after=seen[-1].sequence_number)
    events = [*seen, *rest]
    assert names(events) == [TEXT_EVENTS[0], "response.queued", *TEXT_EVENTS[1:]]
    assert list(slowly.responses.retrieve(name, stream=True)) == events
    last = events[-1].sequence_number
    assert list(slowly.responses.retrieve(name, stream=True, starting_after=last)) == []
    assert events[-1].response == slowly.responses.retrieve(name)


@pytest.mark.parametrize("streamed", [True, False])
def test_of_calls_at_once_with_one_id_a_single_one_is_answered(kept, streamed):
    body = {"input": "hi", "rid": f"one-{streamed}", "background": True, "stream": streamed}
    body["max_output_tokens"] = 40
    with kept.http() as http, ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(http.post, "/v1/responses", json=body) for _ in range(8)]
        statuses = sorted(call.result().status_code for call in calls)
        assert http.delete(f"/v1/responses/{body['rid']}").status_code == 200
    assert statuses == [200] + 7 * [400]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_background_response_is_cancelled(kept, slowly, streamed):
    made = ask(slowly, background=True, stream=streamed, max_output_tokens=900)
    answer = next(iter(made)).response if streamed else made
    wait_until(lambda: slowly.responses.retrieve(answer.id).status == "in_progress")
    with pytest.raises(openai.BadRequestError, match="still runs"):
        ask(slowly, "more", previous_response_id=answer.id)
    cancelled = slowly.responses.cancel(answer.id)
    assert cancelled.status == "cancelled" and cancelled.output[0].status == "incomplete"
    assert cancelled.output_text.startswith(FACE)
    wait_until(lambda: kept.service.client.stats.running == 0 and not kept.service.live)
    assert slowly.responses.retrieve(answer.id) == cancelled
    if streamed:
        last = list(slowly.responses.retrieve(answer.id, stream=True))[-1]
        assert last.type == "response.incomplete" and last.response.status == "cancelled"


def test_deleting_a_background_response_ends_it(kept, slowly):
    answer = ask(slowly, background=True, max_output_tokens=900)
    wait_until(lambda: kept.service.client.stats.running == 1)
    slowly.responses.delete(answer.id)
    wait_until(lambda: kept.service.client.stats.running == 0 and not kept.service.live)
    with pytest.raises(openai.NotFoundError):
        slowly.responses.retrieve(answer.id)


def test_only_background_responses_are_cancelled(client):
    answer = ask(client)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.cancel(answer.id)
    assert caught.value.code == "not_in_background"


def test_an_engine_error_before_the_first_event_is_a_500_and_later_a_failed_response(client):
    for stream in (True, False):
        body = refusal(client, openai.InternalServerError, given="\x03", stream=stream)
        assert "scripted failure" in body["message"]
    events = list(ask(client, "\x07", stream=True, max_output_tokens=50))
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.code == "server_error"
    answer = ask(client, "\x06", background=True)
    wait_until(lambda: client.responses.retrieve(answer.id).status == "failed")
    assert client.responses.retrieve(answer.id).error.code == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 21}, "top_logprobs"),
        ({"extra_body": {"frequency_penalty": 3}}, "frequency_penalty"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "c"}, "conversation"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": UNIQUE}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"colour": "red"}}, "text.colour"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "name": 3}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"background": True, "store": False}, "background"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, None),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10_000}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"given": []}, "input"),
        ({"given": "x" * 30_000}, "input"),
        ({"given": [{"role": "assistant", "content": None}]}, "input[0].content"),
        ({"given": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"given": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"given": [*HI, {"role": "user", "content": [{"type": "input_image"}]}]}, None),
        ({"given": [{"role": "user", "content": "x", "phase": "commentary"}]}, "input[0].phase"),
        ({"given": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"extra_body": {"n": 2}}, "n"),
        ({"extra_body": {"rid": ""}}, "rid"),
    ],
)
def test_fields_that_are_not_obeyed_are_refused_by_name(client, fields, param):
    body = refusal(client, **fields)
    assert param is None or body["param"] == param
    assert body["type"] == "invalid_request_error" and body["message"]


def test_parameters_of_a_retrieval_are_refused_by_name(client, http):
    name = ask(client).id
    for query in ("include=a", "stream=x", "starting_after=1", "stream=true&starting_after=x"):
        refused = http.get(f"/v1/responses/{name}?{query}")
        assert refused.status_code == 400, query
        assert refused.json()["error"]["param"] in query


def test_an_id_with_a_response_is_not_given_twice(client, http):
    body = {"input": "hi", "max_output_tokens": 1, "rid": "my/own"}
    assert http.post("/v1/responses", json=body).json()["id"] == "my/own"
    assert http.get("/v1/responses/my/own").json()["id"] == "my/own"
    assert http.post("/v1/responses", json=body).json()["error"]["param"] == "rid"


def test_tenants_do_not_see_each_others_responses(folder, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("red red-key\nblue blue-key\n")
    keys.chmod(0o600)
    with running(config_for(folder, api_key_file=str(keys))) as server, server.http() as http:
        body = {"input": "hi", "max_output_tokens": 1}
        made = http.post("/v1/responses", json=body, headers=bearer("red-key")).json()
        path = f"/v1/responses/{made['id']}"
        assert http.get(path, headers=bearer("red-key")).json() == made
        assert http.get(path, headers=bearer("blue-key")).status_code == 404
        body["previous_response_id"] = made["id"]
        assert http.post("/v1/responses", json=body, headers=bearer("blue-key")).status_code == 404


def test_as_many_run_in_the_background_as_calls_may_be_answered(folder):
    options = {"step_s": "0.005", "pages": "512"}
    config = config_for(folder, chip_option=options, max_concurrent_requests=1, context_length=1024)
    with running(config) as server, server.http() as http:
        body = {"input": "hi", "background": True, "max_output_tokens": 900}
        name = http.post("/v1/responses", json=body).json()["id"]
        full = http.post("/v1/responses", json=body)
        assert full.status_code == 503 and full.json()["error"]["code"] == "too_many_calls"
        assert http.post(f"/v1/responses/{name}/cancel").json()["status"] == "cancelled"
        assert http.post("/v1/responses", json=body).status_code == 200
        server.ask_to_stop()
        server.ask_to_stop()  # what still runs is cut, and the server ends
        server.thread.join(20)
        assert server.exit_code == 0 and not server.service.live
