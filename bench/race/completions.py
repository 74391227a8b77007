"""A client of /v1/completions: token ids in, a stream of events out, each told when it came.

Standard library only: the client shares the cores with the server that it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from race.workloads import Batch, Job

HOST = "127.0.0.1"
MODEL = "m"
"""The name that every server gives its model."""


class Refused(RuntimeError):
    """The server answered with an error. status: of HTTP; 200 where it came within the stream."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class WrongAnswer(RuntimeError):
    """The answer is not what was asked for, so its time means nothing."""


@dataclass(frozen=True)
class Answer:
    """Seconds from sending: first, last: to the first and the last piece of text. tokens: of the
    answer. counted: the server told how many. cached: prompt tokens that it found in a cache,
    None where it does not tell."""

    first: float
    last: float
    tokens: int
    counted: bool
    cached: int | None


@dataclass(frozen=True)
class BatchRun:
    """A batch that was run. wall: seconds from its start to its end."""

    batch: Batch
    answers: tuple[Answer, ...]
    wall: float


@dataclass
class _Stream:
    """What has been seen of one answer. Times are of the clock, not from the start."""

    first: float | None = None
    last: float | None = None
    finish: str | None = None
    usage: Mapping[str, Any] | None = None

    def take(self, event: Mapping[str, Any], now: float) -> None:
        if event.get("error"):
            raise Refused(200, str(event["error"])[:500])
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices") or ():
            self.finish = choice.get("finish_reason") or self.finish
            # Text that is held back (half of a character) comes with the end.
            if choice.get("text") or choice.get("finish_reason"):
                self.first = now if self.first is None else self.first
            if choice.get("text"):
                self.last = now

    def answer(self, job: Job, begun: float) -> Answer:
        """Raises WrongAnswer where the answer is not of the length asked for."""
        usage = self.usage or {}
        tokens = usage.get("completion_tokens", job.length)
        if self.finish != "length" or tokens != job.length or self.first is None:
            raise WrongAnswer(
                f"asked for {job.length} tokens, got {tokens}; the answer ended by {self.finish!r}"
            )
        details = usage.get("prompt_tokens_details") or {}
        last = self.first if self.last is None else self.last
        counted = "completion_tokens" in usage
        return Answer(
            self.first - begun, last - begun, tokens, counted, details.get("cached_tokens")
        )


async def complete(port: int, job: Job) -> Answer:
    """One greedy answer of exactly `job.length` tokens.

    Raises Refused, WrongAnswer, OSError, asyncio.IncompleteReadError.
    """
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    try:
        writer.write(_request(port, job))
        stream = _Stream()
        chunked = await _head(reader)
        async for line, now in _lines(_chunks(reader) if chunked else _rest(reader)):
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                stream.take(json.loads(line[5:]), now)
        return stream.answer(job, begun)
    finally:
        writer.close()


async def run_batch(port: int, batch: Batch, limit: float) -> BatchRun:
    """Run a batch. limit: seconds for all of it. Raises what `complete` raises, TimeoutError."""
    gate = asyncio.Semaphore(batch.at_once)

    async def one(job: Job) -> Answer:
        async with gate:
            return await complete(port, job)

    begun = time.perf_counter()
    tasks = [asyncio.ensure_future(one(job)) for job in batch.jobs]
    try:
        answers = await asyncio.wait_for(asyncio.gather(*tasks), limit)
    except asyncio.TimeoutError as error:  # the builtin only since Python 3.11
        raise TimeoutError(f"{batch.label} took longer than {limit:g} s") from error
    finally:
        for task in tasks:
            task.cancel()
    return BatchRun(batch, tuple(answers), time.perf_counter() - begun)


def _request(port: int, job: Job) -> bytes:
    fields = {
        "model": MODEL,
        "prompt": job.prompt,
        "max_tokens": job.length,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _head(reader: asyncio.StreamReader) -> bool:
    """Whether the body comes in chunks. Raises Refused."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    if status != 200:
        raise Refused(status, (await reader.read(1000)).decode(errors="replace"))
    return "transfer-encoding: chunked" in head


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def _rest(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(1 << 16):
        yield data


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, float]]:
    """Whole lines, and when the piece that ended each came."""
    held = b""
    async for piece in pieces:
        now = time.perf_counter()
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            yield line, now
