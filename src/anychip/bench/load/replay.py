"""A trace asked again of a server: what is sent, when, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from .calls import Answer, Call, LoadError, Run
from .client import LoadClient
from .figures import Figures, Slo, figures_of
from .loops import closed_loop, open_loop
from .prompts import Asked, Shape, best_hit_rate, calls_of
from .served import Served, ask_server
from .traces import Trace, read_trace

PAGE = 16
"""Page size of the best hit rate, where the server does not tell its own."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be replayed, and how. speed: of the time axis; closed: callers of a closed loop in
    place of the trace's arrivals. shape: `vocab` and `reserved` are filled in from what the server
    tells. slo: limits of a good answer. flush: empty the server's prefix cache first."""

    file: Path
    url: str
    model: str | None = None
    key: str | None = None
    limit: int | None = None
    speed: float = 1.0
    closed: int | None = None
    shape: Shape = Shape()
    slo: Slo = Slo()
    flush: bool = False


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What was replayed and what came of it. seconds: of the trace, from the first arrival to the
    last. best_hit_rate: what an unbounded cache with pages of `page_size` could have found.
    as_recorded: of an exact replay, how many answers were the recorded ones."""

    file: str
    kind: str
    url: str
    served: Served
    seconds: float
    notes: tuple[str, ...]
    figures: Figures
    page_size: int
    best_hit_rate: float | None
    as_recorded: int | None
    run: Run


class Watcher:
    """Is told how a replay goes on; this one does nothing."""

    def begins(self, calls: Sequence[Call], wish: Wish, notes: Sequence[str]) -> None:
        """The server is known, the calls are made, nothing is sent yet."""

    def answered(self, answer: Answer) -> None:
        """One call is over."""


async def replay(wish: Wish, watcher: Watcher) -> Replay:
    """Send a trace's calls. Raises LoadError where that cannot be done as asked."""
    trace = read_trace(wish.file, wish.limit)
    async with LoadClient(wish.url, wish.model or "", key=wish.key) as client:
        served = await ask_server(client, wish.model)
        client.model = served.model
        asked = calls_of(trace, _shape(wish.shape, served))
        notes = (*served.notes, *trace.notes, *asked.notes, *_warnings(trace, asked, served))
        if wish.flush:
            await _flush(client)
            notes = (*notes, "the server's prefix cache was emptied first")
        watcher.begins(asked.calls, wish, notes)
        run = await _run(asked.calls, client, wish, watcher.answered)
        equal = await _as_recorded(asked.calls, run, client) if wish.shape.exact else None
    page_size = served.page_size or PAGE
    return Replay(
        file=str(wish.file),
        kind=trace.kind,
        url=wish.url,
        served=served,
        seconds=trace.seconds,
        notes=notes,
        figures=figures_of(run, wish.slo),
        page_size=page_size,
        best_hit_rate=best_hit_rate(asked.calls, page_size),
        as_recorded=equal,
        run=run,
    )


async def _flush(client: LoadClient) -> None:
    """LoadError where the server cannot do it: vLLM and llama.cpp have no such call."""
    try:
        await client.post("/flush_cache", {}, beside=True)
    except LoadError as error:
        raise LoadError(
            f"--flush-cache: {error}; leave the flag out, or restart the server"
        ) from error


async def _run(
    calls: Sequence[Call], client: LoadClient, wish: Wish, told: Callable[[Answer], None]
) -> Run:
    if wish.closed is not None:
        return await closed_loop(calls, client, concurrency=wish.closed, told=told)
    return await open_loop(calls, client, speed=wish.speed, told=told)


def _shape(shape: Shape, served: Served) -> Shape:
    """With the server's vocabulary. LoadError where ids are wanted and none is known."""
    if shape.exact and not served.exact:
        why = "was started without --allow-exact-replay" if served.ours else "is no AnyChip server"
        raise LoadError(f"--exact: the server {why}, so it would not answer as recorded")
    if shape.text:
        return msgspec.structs.replace(shape, vocab=None)
    vocab = shape.vocab or served.vocab
    return msgspec.structs.replace(shape, vocab=vocab, reserved=served.eos_ids)


def _warnings(trace: Trace, asked: Asked, served: Served) -> list[str]:
    """What will not go well, known before anything is sent."""
    told = []
    if served.context is not None:
        long = sum(_tokens(call) > served.context for call in asked.calls)
        if long:
            told.append(
                f"{long} of {len(asked.calls)} requests need more than the server's"
                f" {served.context} tokens and will be refused: scale or cut them"
            )
    held = sum(one.grammar is not None for one in trace.requests)
    if held and not served.ours:
        told.append(
            f"{held} requests are held to a grammar in fields that ours and SGLang's servers know;"
            " others may leave it out without a word"
        )
    header = trace.header
    if header is not None and header.model and header.model != served.model:
        told.append(f"recorded from {header.model}, replayed with {served.model}")
    return told


def _tokens(call: Call) -> int:
    return call.max_tokens + (len(call.prompt) if isinstance(call.prompt, tuple) else 0)


async def _as_recorded(calls: Sequence[Call], run: Run, client: LoadClient) -> int:
    """How many answers are the text of the recorded tokens, whole."""
    expected = {call.id: call.expected for call in calls}
    good = [answer for answer in run.answers if answer.failure is None]
    texts: list[str] = []
    for start in range(0, len(good), 64):
        rows = [expected[answer.id] for answer in good[start : start + 64]]
        body = await client.post("/detokenize", {"tokens": rows}, beside=True)
        texts += msgspec.json.decode(body, type=_Texts).text
    return sum(
        answer.text == text and answer.output_tokens == len(expected[answer.id] or ())
        for answer, text in zip(good, texts, strict=True)
    )


class _Texts(msgspec.Struct):
    text: list[str]


def time_left(calls: Sequence[Call], wish: Wish, done: int, now: float) -> float:
    """Seconds that a replay probably goes on for."""
    if wish.closed is None:
        return max(0.0, max(call.at_s for call in calls) / wish.speed - now)
    return now / done * (len(calls) - done) if done else math.nan


def refuse_speed(wish: Wish) -> None:
    """LoadError where a closed loop is asked for a speed: it has no time axis."""
    if wish.closed is not None and wish.speed != 1:
        raise LoadError(
            "--speed: in a closed loop the server sets the pace; leave it out, or --closed-loop"
        )


def as_json(found: Replay) -> Mapping[str, Any]:
    """Everything but the answers one by one."""
    values = msgspec.to_builtins(found)
    values.pop("run")
    return {**values, "begun": found.run.begun}
