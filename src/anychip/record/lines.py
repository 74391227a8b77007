"""A record's two kinds of lines: a header, then one line a request, written when it has ended."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

FORMAT = "anychip-record"
VERSION = 1
BLOCK = 64
"""Tokens of a block of `Recorded.blocks`; the last block of a prompt may have fewer."""

Privacy = Literal["text", "tokens", "lengths"]

NUMBERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
)
"""Settings of a request that say nothing of what was written: any record has them."""


class RecordError(ValueError):
    """The file cannot be read or written as a record; the text says why."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of each file. started: unix time that `at_s` counts from. by: who wrote it, a
    server or a proxy before one. block: tokens of a block. part: how often it was rotated.
    quantization: as the engine tells it; empty: none, or not known."""

    format: str
    version: int
    started: float
    model: str = ""
    dtype: str = ""
    quantization: str = ""
    chip: str = ""
    privacy: str = "tokens"
    by: str = "server"
    vocab_size: int | None = None
    block: int = BLOCK
    part: int = 0


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, tenant-free: no key, no name, no id of the client's.

    at: unix time when it came; at_s: the same in seconds since the record began. prompt: token ids;
    text: as text; messages: of a chat whose tokens nobody knew (a proxy); blocks: salted hashes
    that tell equal beginnings, and nothing else. space: a salted hash of what set its part of the
    prefix cache apart. params: fields of /v1/completions that were not at their defaults; grammar:
    what the answer was held to. response: token ids; times: when each came, seconds after `at_s`
    (of pieces of text where the tokens are not known); total_s: when it was over.
    """

    id: int
    at: float
    at_s: float
    endpoint: str = ""
    prompt_tokens: int | None = None
    prompt: list[int] | None = None
    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    blocks: list[str] | None = None
    space: str = ""
    max_tokens: int | None = None
    params: dict[str, Any] = {}
    grammar: dict[str, str] | None = None
    response_tokens: int = 0
    response: list[int] | None = None
    response_text: str | None = None
    times: list[float] = []
    total_s: float = 0.0
    finish: str | None = None
    cached_tokens: int | None = None
    error: str | None = None


class Salt:
    """Hashes that only say "equal": the key is drawn anew for each record and written nowhere."""

    def __init__(self, key: bytes) -> None:
        """key: 16 to 64 secret bytes."""
        self._key = key

    def of(self, text: str) -> str:
        """Of a short text; empty for an empty one."""
        return self._digest(text.encode()).hex() if text else ""

    def blocks(self, prompt: Sequence[int], space: str = "") -> list[str]:
        """One hash a block of a prompt. Equal ones mean that all tokens up to the block's end are
        equal, and the part of the prefix cache is."""
        chain, found = self._digest(space.encode()), []
        for start in range(0, len(prompt), BLOCK):
            part = prompt[start : start + BLOCK]
            chain = self._digest(chain + b"".join(token.to_bytes(4, "little") for token in part))
            found.append(chain.hex())
        return found

    def _digest(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=8).digest()
