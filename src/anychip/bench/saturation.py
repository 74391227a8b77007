"""What keeps a server from doing more, as shares, and the table that names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of 0 to 1 over one stretch of time; None where nothing is known.

    load_generator: of one core, what the program that sends the load uses. lock: of a thread that
    requests pass, its waits for a lock; lock_place: where. page_faults: the same for pages of
    memory. kv_memory: requests retracted of those finished, or the time in which requests wait for
    pages. queue_limit: the time in which all slots are taken and requests wait, or calls refused.
    other_programs: of the machine's cores, what neither process uses while our threads wait for a
    core. chip: how busy it is, `chip_source` says by whose word. tokenizer, http: of one core, the
    HTTP process' event loop, told as the one that it mostly does. scheduler: the time in which the
    chip waits for Python of the engine. interpreter: waits for the interpreter's lock.
    idle: the time in which nothing was there to be computed.
    """

    load_generator: float | None = None
    lock: float | None = None
    lock_place: str = ""
    page_faults: float | None = None
    kv_memory: float | None = None
    queue_limit: float | None = None
    other_programs: float | None = None
    chip: float | None = None
    chip_source: str = ""
    tokenizer: float | None = None
    http: float | None = None
    scheduler: float | None = None
    interpreter: float | None = None
    idle: float | None = None


@dataclass(frozen=True)
class Cause:
    """A row of the table. figure: the field of `Facts` that must reach `least`.

    meaning: with {share}, {place} and {source} filled in. step: what to do next.
    """

    name: str
    figure: str
    least: float
    meaning: str
    step: str


CAUSES: tuple[Cause, ...] = (
    Cause(
        "load generator",
        "load_generator",
        0.85,
        "the program that sends the load uses {share} of a core: it is measured, not the server",
        "run it on another machine, or several of it",
    ),
    Cause(
        "lock",
        "lock",
        0.2,
        "{share} of the time a thread that requests pass waits for a lock at {place}",
        "hold that lock for less, or have none: look at what else takes it",
    ),
    Cause(
        "memory paging",
        "page_faults",
        0.2,
        "{share} of the time the engine waits for pages of its memory",
        "give weights and KV less: a smaller --mem-fraction-static, or --max-total-tokens",
    ),
    Cause(
        "KV memory",
        "kv_memory",
        0.2,
        "requests are retracted, or wait for pages of the KV cache ({share})",
        "more cache (--mem-fraction-static, --kv-cache-dtype), or a smaller --max-running-requests",
    ),
    Cause(
        "queue limit",
        "queue_limit",
        0.5,
        "{share} of the time every slot is taken and requests wait, or calls are refused",
        "a larger --max-running-requests (and --max-concurrent-requests), where memory allows",
    ),
    Cause(
        "other programs",
        "other_programs",
        0.3,
        "other programs take {share} of the machine's cores while the server waits for one",
        "end them, move the load generator elsewhere, or give the server cores of its own",
    ),
    Cause(
        "chip",
        "chip",
        0.85,
        "the chip is busy {share} of the time ({source})",
        "faster operators: the seconds by operator in /metrics, or anychip coverage",
    ),
    Cause(
        "tokenizer",
        "tokenizer",
        0.8,
        "the HTTP process' one thread is busy {share} of the time, mostly with texts",
        "send token ids, or shorter texts; run a second server beside it",
    ),
    Cause(
        "HTTP process",
        "http",
        0.8,
        "the HTTP process' one thread is busy {share} of the time",
        "fewer streams or larger pieces of text; run a second server beside it",
    ),
    Cause(
        "scheduler",
        "scheduler",
        0.4,
        "{share} of the time the chip waits for Python of the engine's loop",
        "GET /debug/stacks names the lines; --disable-overlap-schedule must not be set",
    ),
    Cause(
        "interpreter",
        "interpreter",
        0.25,
        "{share} of the time a thread that requests pass waits for Python's own lock",
        "less Python in that process: GET /debug/stacks names who else runs there",
    ),
)
"""The first whose figure is reached is the cause: what hides others stands before them."""


@dataclass(frozen=True)
class Saturated:
    """A cause that was found, and how much of it."""

    cause: Cause
    share: float
    text: str

    @property
    def name(self) -> str:
        """The cause's name."""
        return self.cause.name


def saturated(facts: Facts) -> Iterator[Saturated]:
    """Every cause whose figure is reached, in the order of the table."""
    for cause in CAUSES:
        share: float | None = getattr(facts, cause.figure)
        if share is not None and share >= cause.least:
            text = cause.meaning.format(
                share=f"{share:.0%}", place=facts.lock_place, source=facts.chip_source
            )
            yield Saturated(cause, share, text)
