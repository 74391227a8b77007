"""What an event of a stream looks like on the wire, and which way it goes."""

from __future__ import annotations

import asyncio
import json

import pytest

from anychip.http.observed import Observed
from anychip.http.stream import SHORT_WAY, EventStream, TextEvents, event
from anychip.http.telling import Telling

LINE_ENDS = "a\x85b\u2028c\u2029d\u00e9\u4f60\x0be"


def test_no_event_holds_what_clients_take_for_the_end_of_a_line():
    sent = event({"text": LINE_ENDS})
    assert sent.decode().splitlines() == [sent.decode().strip(), ""]
    assert json.loads(sent.removeprefix(b"data: ")) == {"text": LINE_ENDS}


@pytest.mark.parametrize("text", ["", " a", 'b"\\\n\x00', "\U0001f642", LINE_ENDS])
def test_an_event_of_one_text_is_what_it_would_be_anyway(text):
    def event_of(told):
        return event({"id": "\u2028é", "choices": [{"text": told, "logprobs": None}]})

    assert TextEvents(event_of).event(text) == event_of(text)


class Way:
    """Takes what is sent. scope: of a call of the outermost layer."""

    def __init__(self) -> None:
        self.messages = []
        self.scope = {"type": "http", "path": "/v1/x", "method": "POST", "headers": []}

    async def send(self, message):
        self.messages.append(message)

    async def receive(self):
        await asyncio.Event().wait()

    @property
    def bodies(self):
        return [one["body"] for one in self.messages if one["type"] == "http.response.body"]


async def three():
    for number in range(3):
        yield event(number)


def test_layers_see_head_and_end_and_the_client_everything():
    way, seen = Way(), []

    async def layer(scope, receive, send):
        async def noting(message):
            seen.append(message["type"])
            await send(message)

        assert SHORT_WAY in scope["extensions"]
        await EventStream(three())(scope, receive, noting)

    app = Observed(layer, Telling(), lambda scope: None)
    asyncio.run(app(way.scope, way.receive, way.send))
    assert seen == ["http.response.start", "http.response.body"]
    assert way.bodies == [event(0), event(1), event(2), b""]
    assert [one.get("more_body", False) for one in way.messages[1:]] == [True, True, True, False]


def test_a_stream_without_the_short_way_goes_through_the_layers():
    way = Way()
    asyncio.run(EventStream(three())(way.scope, way.receive, way.send))
    assert way.bodies == [event(0), event(1), event(2), b""]


def test_a_quiet_stream_pings_from_its_first_event_to_its_last():
    way, rest = Way(), asyncio.Event()

    async def events():
        await asyncio.sleep(0.05)  # nothing has begun, so nothing is sent
        yield b"first"
        await rest.wait()
        yield b"last"

    async def main():
        stream = EventStream(events(), ping=b"ping", quiet_s=0.01)
        answering = asyncio.ensure_future(stream(way.scope, way.receive, way.send))
        while way.bodies.count(b"ping") < 3:
            await asyncio.sleep(0.001)
        rest.set()
        await answering
        told = len(way.messages)
        await asyncio.sleep(0.03)
        return told

    assert asyncio.run(main()) == len(way.messages)
    bodies = way.bodies
    assert bodies[:4] == [b"first", b"ping", b"ping", b"ping"]
    assert bodies[-2:] == [b"last", b""] and set(bodies[4:-2]) <= {b"ping"}


def test_no_ping_outlives_a_stream_that_fails():
    way = Way()

    async def events():
        yield b"first"
        raise ZeroDivisionError

    async def main():
        with pytest.raises(ZeroDivisionError):
            await EventStream(events(), ping=b"ping", quiet_s=0.01)(
                way.scope, way.receive, way.send
            )
        await asyncio.sleep(0.03)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1 and way.bodies == [b"first"]
