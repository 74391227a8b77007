from __future__ import annotations

import asyncio
import json

import pytest

from anychip.http.errors import ApiError, server_error
from anychip.server.chat_call import ChatUsage
from anychip.server.chat_events import (
    End,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from anychip.server.origin import Origin
from anychip.server.responses_protocol import ResponseObject
from anychip.server.responses_run import ResponseRun
from anychip.server.responses_store import ResponseStore
from anychip.server.responses_writer import Writer

HI = [{"role": "user", "content": "hi"}]
USAGE = ChatUsage(prompt_tokens=3, completion_tokens=9, cached_tokens=2, reasoning_tokens=4)
THINKS_AND_CALLS = [
    ReasoningDelta(choice=0, text="h"),
    ReasoningDelta(choice=0, text="m"),
    TextDelta(choice=0, text="a"),
    ToolCallStart(choice=0, index=0, id="call_a", name="f"),
    ToolCallArguments(choice=0, index=0, delta='{"x":'),
    ToolCallArguments(choice=0, index=0, delta="1}"),
    ToolCallStart(choice=0, index=1, id="call_b", name="g"),
    ToolCallArguments(choice=0, index=1, delta="{}"),
    End(choice=0, finish="tool_calls"),
]


def blank(**fields):
    fields = {"id": "r", "created_at": 1, "model": "m", "status": "in_progress", **fields}
    return ResponseObject(output=[], **fields)


class Answer:
    """Tells `events`; waits at None until it is cancelled, raises what is an error."""

    def __init__(self, *events):
        self.origin = Origin(rid="r")
        self.script = events

    async def events(self):
        for event in self.script:
            await asyncio.sleep(0)
            if event is None:
                await asyncio.Event().wait()
            if isinstance(event, Exception):
                raise event
            yield event

    def usage(self):
        return USAGE


def run_of(*events, store=None, **fields):
    store = ResponseStore(10, 10**6) if store is None else store
    return ResponseRun(store, Answer(*events), blank(**fields), HI)


def test_thoughts_words_and_calls_are_items_in_their_order():
    writer = Writer(blank())
    events = [event for told in THINKS_AND_CALLS for event in writer.take(told)]
    assert [event.kind.removeprefix("response.") for event in events] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    places = [event.output_index for event in events]
    assert places == sorted(places) and set(places) == {0, 1, 2, 3}
    thought, said, first, second = writer.response.output
    assert (thought.content[0].text, said.content[0].text) == ("hm", "a")
    assert (first.name, first.call_id, first.arguments) == ("f", "call_a", '{"x":1}')
    assert (second.name, second.call_id, second.arguments) == ("g", "call_b", "{}")
    assert {item.status for item in writer.response.output} == {"completed"}
    (last,) = writer.finish("tool_calls", USAGE)
    assert last.kind == "response.completed" and last.response.status == "completed"
    assert last.response.usage.output_tokens_details.reasoning_tokens == 4
    assert last.response.usage.input_tokens_details.cached_tokens == 2


def test_arguments_of_a_call_that_has_not_begun_are_our_mistake():
    with pytest.raises(TypeError, match="has not begun"):
        list(Writer(blank()).take(ToolCallArguments(choice=0, index=0, delta="{")))


def test_the_next_turn_is_told_what_was_thought_said_and_called():
    run = run_of(*THINKS_AND_CALLS)
    asyncio.run(run.whole())
    hi, said = run.messages
    assert [hi] == HI and (said["content"], said["reasoning_content"]) == ("a", "hm")
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["f", "g"]
    assert said["tool_calls"][0]["function"]["arguments"] == '{"x":1}'


def test_a_run_that_fails_on_the_way_ends_its_stream_with_the_reason():
    async def told():
        return [data async for data in run.stream()]

    run = run_of(TextDelta(choice=0, text="a"), server_error("the chip is gone"))
    *_, last = asyncio.run(told())
    name, data = last.decode().strip().split("\n")
    assert name == "event: response.failed"
    response = json.loads(data.removeprefix("data: "))["response"]
    assert response["error"] == {"code": "server_error", "message": "the chip is gone"}
    assert response["output"][0]["status"] == "incomplete"
    assert run.messages == HI  # a failed answer is no turn


def test_a_bug_fails_the_background_response_and_is_logged(caplog):
    async def main():
        run = run_of(ZeroDivisionError("a bug"), store=store, background=True)
        run.begin(streamed=True)
        return [data async for data in run.follow(-1)], run.response

    store = ResponseStore(10, 10**6)
    events, response = asyncio.run(main())
    assert b"response.failed" in events[-1]
    assert response.error.message == "internal error (ZeroDivisionError)"
    assert "a bug" in caplog.text and store.running == 0


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_background_run_is_cancelled_at_any_moment(turns):
    async def main():
        run = run_of(TextDelta(choice=0, text="a"), None, store=store, background=True)
        run.begin(streamed=False)
        assert store.running == 1 and store.get(None, "r") is run
        for _ in range(turns):
            await asyncio.sleep(0)
        await run.cancel()
        assert run.response.status == "cancelled" and not run.running
        await run.cancel()
        await asyncio.sleep(0)
        assert store.running == 0 and store.get(None, "r") is run

    store = ResponseStore(10, 10**6)
    asyncio.run(main())


class Kept:
    def __init__(self, size, running=False):
        self.bytes, self.running = size, running

    def size(self):
        return self.bytes


def names(store, *names):
    return [name for name in names if store.has(None, name)]


def test_the_store_is_bounded_by_count_and_by_bytes():
    store = ResponseStore(2, 100)
    for name in "abc":
        store.put(None, name, Kept(30))
    assert names(store, *"abc") == ["b", "c"]
    store.get(None, "b")
    store.put(None, "d", Kept(60))
    assert names(store, *"bcd") == ["b", "d"]
    store.put(None, "e", Kept(50))
    assert names(store, *"bde") == ["e"]
    store.put(None, "f", Kept(101))  # larger than all the room
    assert names(store, *"ef") == ["e"]
    store.put("red", "g", Kept(60))
    store.put("blue", "g", Kept(60))
    assert store.has("red", "g") and store.has("blue", "g") and not store.has(None, "g")


def test_what_runs_is_not_evicted_and_counts_from_when_it_is_done():
    store = ResponseStore(1, 100)
    one = Kept(90, running=True)
    store.put(None, "a", one)
    store.put(None, "b", Kept(90))
    assert names(store, *"ab") == ["a", "b"]
    one.running = False
    store.put(None, "a", one)
    assert names(store, *"ab") == ["a"]
    store.drop(None, "a")
    store.drop(None, "a")
    store.put(None, "c", Kept(100))
    assert names(store, "c") == ["c"]
    with pytest.raises(ApiError, match="there is no response 'a'"):
        store.get(None, "a")
