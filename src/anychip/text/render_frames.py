"""What the renderer of chat templates and its parent say to each other, without jinja2, which the
parent needs for nothing.

Frames both ways: 4 bytes length, big-endian, then msgpack.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec


class RenderJob(msgspec.Struct, frozen=True):
    """One template to render (`variables`: None to compile it only), within `limit_s` seconds."""

    template: str
    variables: dict[str, Any] | None
    limit_s: float


class RenderReply(msgspec.Struct, frozen=True):
    """The rendered text, or why there is none."""

    text: str = ""
    error: str | None = None


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
