"""What the server's end of the connection makes of the engine's bytes."""

from __future__ import annotations

import asyncio
import struct

import msgspec
import pytest

from anychip.engine.child import Hearing
from anychip.engine.connection import MAX_FRAME_BYTES, PeerGone, encode_frame
from anychip.engine.messages import Flushed, Refused, StepMessage
from anychip.request import StepOutput

STEP = StepMessage([StepOutput(request_id="a", token_ids=(1, 2))], None)
SAID = [STEP, Refused("b" * 400, "too long", later=False), STEP, Flushed(3, done=True)]
BYTES = b"".join(map(encode_frame, SAID))


def heard(*pieces: bytes, before: int = 0):
    """What came of these pieces, of which so many came before anybody listened; and `over`."""

    async def main():
        hearing, taken = Hearing(), []
        for piece in pieces[:before]:
            hearing.data_received(piece)
        assert not taken
        hearing.begin(taken.append)
        for piece in pieces[before:]:
            hearing.data_received(piece)
        return taken, hearing.over.done()

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 90, 400, len(BYTES) - 1, len(BYTES)])
def test_messages_come_in_order_wherever_their_bytes_are_cut(size):
    pieces = [BYTES[start : start + size] for start in range(0, len(BYTES), size)]
    assert heard(*pieces) == (SAID, False)
    assert heard(*pieces, before=(len(pieces) + 1) // 2) == (SAID, False)


def test_a_message_is_taken_in_the_turn_in_which_it_comes():
    async def main():
        hearing, taken = Hearing(), []
        hearing.begin(taken.append)
        hearing.data_received(BYTES)
        return taken  # no await lies between

    assert asyncio.run(main()) == SAID


@pytest.mark.parametrize(
    "broken",
    [struct.pack(">I", MAX_FRAME_BYTES + 1), encode_frame(["Unheard", 1]), encode_frame(7)],
)
def test_what_is_no_message_ends_it_and_is_told(broken, caplog):
    first = encode_frame(STEP)
    assert heard(first + broken + first, first) == ([STEP], True)
    assert "is no message" in caplog.text
    assert heard(first, broken[:3], broken[3:], first) == ([STEP], True)


@pytest.mark.parametrize("error", [ZeroDivisionError, PeerGone, msgspec.ValidationError])
def test_an_error_of_who_takes_reaches_who_waits(error):
    def take(message):
        raise error

    async def main():
        hearing = Hearing()
        hearing.begin(take)
        hearing.data_received(BYTES)
        with pytest.raises(error):
            await hearing.over

    asyncio.run(main())


def test_nothing_is_taken_behind_the_end():
    async def main():
        hearing, taken = Hearing(), []
        hearing.begin(taken.append)
        hearing.data_received(BYTES[:-1])
        hearing.end()
        hearing.data_received(BYTES[-1:] + BYTES)
        hearing.connection_lost(ConnectionResetError())
        await hearing.over
        return taken

    assert asyncio.run(main()) == SAID[:-1]
