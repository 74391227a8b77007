"""What the fetching process is asked, and the lines that it answers: JSON, one object a line."""

from __future__ import annotations

from typing import Literal

import msgspec

SourceName = Literal["huggingface", "modelscope"]


class Wanted(msgspec.Struct, frozen=True):
    """Which model, from where.

    file: see `HubName`. load_format: "auto", "safetensors" or "gguf". cache_dir: the hub's cache in
    place of the client's own. tokenizer: the files around the weights will do.
    """

    source: SourceName
    id: str
    revision: str | None = None
    file: str | None = None
    load_format: str = "auto"
    cache_dir: str | None = None
    tokenizer: bool = False


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Bytes that are here, and bytes in all."""

    done: int
    total: int


class Note(msgspec.Struct, frozen=True, tag=True):
    """Something that the user should know."""

    text: str


class Found(msgspec.Struct, frozen=True, tag=True):
    """The end: a folder, or a .gguf file."""

    path: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The end: why there is no model."""

    text: str


Event = Progress | Note | Found | Failed
