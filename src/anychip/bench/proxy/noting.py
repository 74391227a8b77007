"""What is read of a call that passes by: its prompt, its settings, and its answer's pieces."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from anychip.bench.load.events import Stream
from anychip.record.lines import NUMBERS, Privacy, Recorded, Salt

RECORDED = ("/chat/completions", "/completions")
"""Ends of the paths whose calls are recorded; all others pass by."""
MOST_NOTED = 64 << 20
"""Bytes of a whole answer that are read; of a longer one only the length of the call is noted."""
_OWN = ("model", "prompt", "messages", "stream", "stream_options", "user", "metadata", "store")
_LIMITS = ("max_completion_tokens", "max_tokens")


class Note:
    """One call. All that is put off until `line`, which the record's thread calls."""

    def __init__(self, number: int, path: str, body: bytes, began: float) -> None:
        """began: when the record did, by time.monotonic."""
        self._number, self._path, self._body = number, path, body
        self._begun, self._began = time.monotonic(), began
        self._stream, self._pieces, self._size = Stream(), bytearray(), 0
        self._unpack: Any = None
        self._events = False
        self._error: str | None = None
        self._end_s = 0.0

    def answers(self, status: int, kind: str, encoding: str) -> None:
        """The answer begins. kind: its content type; encoding: how it is packed."""
        self._events = kind.startswith("text/event-stream")
        if status != 200:
            self._error = f"http {status}"
        if encoding in ("gzip", "deflate"):
            self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif encoding not in ("", "identity"):
            self._error = f"encoded in {encoding}, which is not read"

    def piece(self, data: bytes) -> None:
        """A piece of the answer has come. An answer that cannot be read is not noted."""
        if self._error is not None:
            return
        if self._unpack is not None:
            try:
                data = self._unpack.decompress(data)
            except zlib.error as error:
                self._error = f"not readable: {error}"
                return
        if self._events:
            self._stream.feed(data, time.monotonic() - self._begun)
        elif self._size + len(data) <= MOST_NOTED:
            self._pieces += data
        self._size += len(data)

    def ended(self, error: str | None = None) -> None:
        """The answer is over. error: why it is not whole."""
        self._end_s = time.monotonic() - self._begun
        self._error = self._error or error

    def line(self, started: float, privacy: Privacy, salt: Salt) -> Recorded:
        """The line of the record. started: unix time of its beginning."""
        asked = _object(self._body)
        seen, error = self._answer()
        at_s = self._begun - self._began
        content = privacy != "lengths"
        line = Recorded(
            id=self._number,
            at=started + at_s,
            at_s=round(at_s, 6),
            endpoint=self._path,
            total_s=round(self._end_s, 6),
            max_tokens=_limit(asked),
            params=_params(asked, content),
            error=error,
            **_of_the_first(seen, asked),
        )
        return _with_prompt(line, asked, content, salt)

    def _answer(self) -> tuple[dict[str, Any], str | None]:
        """Fields of the answer, and what is wrong with it."""
        if self._events:
            seen = self._stream.seen
            verdict = self._stream.verdict()
            times = [round(when, 6) for when in self._stream.times]
            error = self._error or (verdict.kind if verdict else None)
        else:
            whole = _object(bytes(self._pieces))
            seen, times = _whole(whole), [round(self._end_s, 6)]
            error = self._error or (None if whole.get("choices") else "not readable")
        found = {
            "prompt_tokens": seen.get("prompt_tokens"),
            "response_tokens": seen.get("output_tokens") or 0,
            "response_text": seen.get("text"),
            "cached_tokens": seen.get("cached_tokens"),
            "finish": seen.get("finish") if not error else "abort" if error == "abort" else "error",
            "times": times,
        }
        return found, error


def is_recorded(method: str, path: str) -> bool:
    """Whether a call asks for an answer of a model."""
    return method == "POST" and path.endswith(RECORDED)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an answer in one piece, by the reader of streams: its first choice is an event."""
    choices = [one for one in answer.get("choices") or () if isinstance(one, dict)][:1]
    parts = [{**one, "delta": one.get("message") or {}} for one in choices]
    stream = Stream()
    event = {"choices": parts, "usage": answer.get("usage")}
    stream.feed(b"data: " + msgspec.json.encode(event) + b"\n", 0.0)
    return stream.seen


def _of_the_first(seen: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Of several prompts or answers the first is recorded, and usage counts all of them."""
    prompt, many = asked.get("prompt"), asked.get("n")
    prompts = len(prompt) if isinstance(prompt, list) and not _are_ids(prompt) else 1
    answers = prompts * (many if isinstance(many, int) and many > 0 else 1)
    change: dict[str, Any] = {}
    if answers > 1:
        change["response_tokens"] = -(-seen["response_tokens"] // answers)
    if prompts > 1:
        change |= {"prompt_tokens": None, "cached_tokens": None}
    return {**seen, **change}


def _are_ids(prompt: list[Any]) -> bool:
    return all(type(token) is int for token in prompt)


def _limit(asked: Mapping[str, Any]) -> int | None:
    given = next((asked[name] for name in _LIMITS if asked.get(name) is not None), None)
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _params(asked: Mapping[str, Any], content: bool) -> dict[str, Any]:
    if content:
        return {n: v for n, v in asked.items() if n not in (*_OWN, *_LIMITS)}
    return {n: v for n in (*NUMBERS, "n") if isinstance(v := asked.get(n), (int, float))}


def _with_prompt(line: Recorded, asked: Mapping[str, Any], content: bool, salt: Salt) -> Recorded:
    """With the prompt in the form in which it came; of several prompts the first."""
    prompt, messages = asked.get("prompt"), asked.get("messages")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]
    ids = prompt if isinstance(prompt, list) and _are_ids(prompt) else None
    change: dict[str, Any] = {}
    if ids is not None:
        change["prompt_tokens"] = len(ids)
    if content:
        change |= {
            "prompt": ids,
            "text": prompt if isinstance(prompt, str) else None,
            "messages": messages if _are_messages(messages) else None,
        }
    else:
        change["response_text"] = None
        if ids and all(0 <= token < 2**32 for token in ids):
            change["blocks"] = salt.blocks(ids)
    return msgspec.structs.replace(line, **change)


def _are_messages(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(one, dict) for one in found)
