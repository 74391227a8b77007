"""What a call asks for, as far as the choice of a worker depends on it. Never refuses anything.

A body that is not understood leaves the defaults: the worker refuses it, in its own words.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

MOST_PREFIX = 512 << 10
"""Bytes of a prompt that are kept to tell prompts apart by their beginnings."""
BYTES_PER_TOKEN = 4
"""The estimate for text, which only a worker's tokenizer can count."""
KEY_HEADER = "x-smg-routing-key"
ROUTED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/tokenize",
    "/v1/detokenize",
    "/generate",
    "/tokenize",
    "/detokenize",
)
"""Paths of calls that any worker with the model may answer."""

_ROLE, _PART = b"\x1e", b"\x1f"
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Ask:
    """One call. prompt: the beginning of its prompt; equal beginnings are equal bytes.

    prompt_tokens: of all its prompts; ids are counted, texts estimated. max_tokens: of each
    answer, None where the call does not say. choices: answers, over all prompts. key: by whom
    calls are kept together. follows: the response that it goes on from. rid: the client's name
    for it.
    """

    path: str
    model: str | None = None
    prompt: bytes = b""
    prompt_tokens: int = 0
    max_tokens: int | None = None
    choices: int = 1
    stream: bool = False
    key: str | None = None
    follows: str | None = None
    rid: str | None = None


def read_ask(path: str, headers: Mapping[str, str], body: bytes) -> Ask:
    """What the call says. headers: names in lower case. Time is linear in the body's length."""
    key = headers.get(KEY_HEADER) or None
    try:
        asked = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # no JSON, or nested beyond reason
        return Ask(path, key=key)
    if not isinstance(asked, dict):
        return Ask(path, key=key)
    found = _Prompt()
    found.read(asked)
    params = asked.get("sampling_params")
    params = params if isinstance(params, dict) else {}
    return Ask(
        path=path,
        model=_text(asked.get("model")),
        prompt=bytes(found.beginning),
        prompt_tokens=found.ids + -(-found.text_bytes // BYTES_PER_TOKEN),
        max_tokens=_longest(asked, params),
        choices=found.prompts * _choices(asked, params),
        stream=asked.get("stream") is True,
        key=key or _key(asked),
        follows=_text(asked.get("previous_response_id")),
        rid=_text(asked.get("rid")),
    )


def _longest(asked: Mapping[str, Any], params: Mapping[str, Any]) -> int | None:
    """Of the words for it, the one that the call uses; chat's newer one first."""
    given = (
        asked.get("max_completion_tokens"),
        asked.get("max_tokens"),
        asked.get("max_output_tokens"),
        params.get("max_new_tokens"),
    )
    return next((number for number in map(_count, given) if number is not None), None)


def _choices(asked: Mapping[str, Any], params: Mapping[str, Any]) -> int:
    return _count(asked.get("n")) or _count(params.get("n")) or 1


def _key(asked: Mapping[str, Any]) -> str | None:
    """Whose calls these are, in the words of the dialects."""
    about = asked.get("metadata")
    user = about.get("user_id") if isinstance(about, dict) else None
    given = (asked.get("prompt_cache_key"), asked.get("user"), user)
    return next((text for text in map(_text, given) if text is not None), None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    """A whole number of at least 0, bounded; anything else is nothing."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return min(value, _LARGEST) if whole and value >= 0 else None


class _Prompt:
    """Gathers the prompts of a call: the first one's beginning, and what all of them amount to."""

    def __init__(self) -> None:
        self.beginning = bytearray()
        self.ids = self.text_bytes = 0
        self.prompts = 1

    def read(self, asked: Mapping[str, Any]) -> None:
        """What stands where a dialect has its prompt. Templates begin with instructions, tools."""
        for name in ("instructions", "system"):
            if asked.get(name) is not None:
                self._message("system", asked[name])
        tools = asked.get("tools")
        if isinstance(tools, list) and tools:
            self._json(tools)
        self._items(asked.get("messages"))
        given = asked.get("input")
        if isinstance(given, str):
            self._message("user", given)
        else:
            self._items(given)
        for name in ("prompt", "text", "input_ids"):
            self._prompts(asked.get(name))

    def _items(self, items: Any) -> None:
        """Messages of a chat, or the items of a response's input."""
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict):
                continue
            self._message(item.get("role"), item.get("content"))
            rest = {name: item[name] for name in item if name not in ("role", "content", "id")}
            rest.pop("type", None)
            if rest:
                self._json(rest)

    def _message(self, role: Any, content: Any) -> None:
        self._keep(_ROLE + (_text(role) or "").encode("utf-8", "replace"))
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                self._text(text)
            elif isinstance(part, dict):
                self._json(part)

    def _prompts(self, given: Any) -> None:
        """One text, one row of ids, or several of either."""
        several = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
        rows = given if several else [given]
        if several:
            self.prompts = len(rows)
        for number, row in enumerate(rows):
            if isinstance(row, str):
                self._text(row, kept=number == 0)
            elif isinstance(row, list):
                self._ids(row, kept=number == 0)

    def _ids(self, ids: Sequence[Any], *, kept: bool) -> None:
        """Ids as little-endian int32; what cannot be one ends what is kept."""
        self.ids += len(ids)
        if not kept:
            return
        first = ids[: MOST_PREFIX // 4]
        try:
            self._keep(struct.pack(f"<{len(first)}i", *first))
        except struct.error:  # no ids: the worker says so
            return

    def _text(self, text: str, *, kept: bool = True) -> None:
        told = text.encode("utf-8", "replace")
        self.text_bytes += len(told)
        if kept:
            self._keep(_PART + told)

    def _json(self, value: Any) -> None:
        """Tools, calls and parts other than text; they count as the text that they are."""
        told = msgspec.json.encode(value)
        self.text_bytes += len(told)
        self._keep(_PART + told)

    def _keep(self, told: bytes) -> None:
        room = MOST_PREFIX - len(self.beginning)
        if room > 0:
            self.beginning += told[:room]
