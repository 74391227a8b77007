"""Frames between a parent and its child process: 4 bytes length, big-endian, then the body."""

from __future__ import annotations

from typing import IO


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next frame's body; None at the end of the stream, also in the middle of a frame."""
    header = source.read(4)
    if len(header) < 4:
        return None
    size = int.from_bytes(header, "big")
    body = source.read(size)
    return body if len(body) == size else None


def write_frame(sink: IO[bytes], body: bytes) -> None:
    """Write one frame and flush."""
    sink.write(len(body).to_bytes(4, "big"))
    sink.write(body)
    sink.flush()
