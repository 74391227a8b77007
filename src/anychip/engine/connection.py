"""Frames over a connected Unix stream socket: a 4-byte big-endian length, then msgpack.

The two ends are a `socketpair`: it has no name in any file system, so nobody else can connect to
it and nothing is left behind, however the processes end.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from typing import Any

import msgspec

FRAME_HEADER = struct.Struct(">I")
"""The length of a frame's body."""
_READ_BYTES = 1 << 18
MAX_FRAME_BYTES = 1 << 30
"""A longer frame can only be a broken stream; a prompt of a million tokens has five million."""


class PeerGone(ConnectionError):
    """The other end of the connection has closed it, or sent what is no frame."""


def encode_frame(message: object) -> bytes:
    """One message as bytes on the wire."""
    body = msgspec.msgpack.encode(message)
    return FRAME_HEADER.pack(len(body)) + body


def frame_length(data: bytes | bytearray, begin: int = 0) -> int:
    """Bytes of the body behind the header that begins there. PeerGone where that cannot be."""
    length: int = FRAME_HEADER.unpack_from(data, begin)[0]
    if length > MAX_FRAME_BYTES:
        raise PeerGone(f"a frame of {length:,} bytes; the longest is {MAX_FRAME_BYTES:,}")
    return length


class Connection:
    """The engine's end: blocking, and what arrives is read without waiting while there is work.

    `send` may be called from any thread (log lines); `receive` from one.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def send(self, message: object) -> None:
        """Send one message; waits while the other end does not read. PeerGone if it has left."""
        frame = encode_frame(message)
        try:
            with self._sending:
                self._socket.sendall(frame)
        except OSError as error:
            raise PeerGone("the server has left") from error

    def receive(self, wait_s: float) -> list[bytes]:
        """Every frame that is there; waits up to `wait_s` seconds for the first.

        PeerGone where the other end has closed and all that it sent is read.
        """
        timeout = wait_s * 1000
        while self._poll.poll(timeout):
            try:
                self._read()
            except PeerGone:
                if frames := self._frames():
                    return frames  # the next call tells
                raise
            timeout = 0
            if len(self._buffer) > MAX_FRAME_BYTES:
                break
        return self._frames() if self._buffer else []

    def receive_one(self, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
        """The next message, however long it takes. PeerGone where there is none."""
        while not (frame := self._next_frame()):
            self._read()
        return decoder.decode(frame)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise PeerGone("the server has left") from error
        if not data:
            raise PeerGone("the server has left")
        self._buffer += data

    def _frames(self) -> list[bytes]:
        frames = []
        while frame := self._next_frame():
            frames.append(frame)
        return frames

    def _next_frame(self) -> bytes:
        if len(self._buffer) < FRAME_HEADER.size:
            return b""
        end = FRAME_HEADER.size + frame_length(self._buffer)
        if len(self._buffer) < end:
            return b""
        frame = bytes(self._buffer[FRAME_HEADER.size : end])
        del self._buffer[:end]
        return frame
