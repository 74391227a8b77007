from __future__ import annotations

import socket
import struct

import msgspec
import pytest

from anychip.engine.connection import MAX_FRAME_BYTES, Connection, PeerGone, encode_frame
from anychip.engine.messages import Abort, Close, Commands, Submit
from anychip.request import Request, SamplingParams


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    connection = Connection(theirs)
    yield ours, connection
    ours.close()
    connection.close()


def test_commands_survive_the_wire(ends):
    ours, connection = ends
    request = Request(id="a", prompt=(1, 2), params=SamplingParams(max_tokens=3, seed=-1))
    sent = Commands([Submit(request), Abort("b"), Close()])
    ours.sendall(encode_frame(sent))
    assert msgspec.msgpack.Decoder(Commands).decode(connection.receive(1)[0]) == sent


def test_frames_cut_anywhere_are_put_together(ends):
    ours, connection = ends
    data = encode_frame(["first"]) + encode_frame(["x" * 300_000])
    got = []
    for start in range(0, len(data), 77_777):
        ours.sendall(data[start : start + 77_777])
        got += connection.receive(0)
    assert [msgspec.msgpack.decode(frame)[0][:5] for frame in got] == ["first", "xxxxx"]


def test_nothing_there_is_no_frame(ends):
    assert ends[1].receive(0) == []


def test_a_closed_end_is_noticed(ends):
    ours, connection = ends
    ours.sendall(struct.pack(">I", 10) + b"half")
    ours.close()
    with pytest.raises(PeerGone):
        connection.receive(1)
    with pytest.raises(PeerGone):
        connection.send(["x"])


def test_what_was_sent_before_the_end_arrives(ends):
    ours, connection = ends
    ours.sendall(encode_frame(["last words"]))
    ours.close()
    assert [msgspec.msgpack.decode(frame) for frame in connection.receive(1)] == [["last words"]]
    with pytest.raises(PeerGone):
        connection.receive(1)


def test_an_absurd_length_is_refused(ends):
    ours, connection = ends
    ours.sendall(struct.pack(">I", MAX_FRAME_BYTES + 1))
    with pytest.raises(PeerGone, match="longest"):
        connection.receive(1)
