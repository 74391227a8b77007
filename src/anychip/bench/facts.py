"""From what a server tells to `Facts`: which thread was busy with what, and what was short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from anychip.bench.saturation import Facts
from anychip.bench.server_view import mean
from anychip.engine.evidence import (
    FAULT,
    HANDOVER,
    IO,
    LAYERS,
    LOCK,
    NATIVE,
    NATIVE_WAIT,
    PYTHON,
    Evidence,
    ProcessSeen,
    ThreadSeen,
)
from anychip.engine.looking import LOOP, STEPS
from anychip.plan import SchedulerStats

HTTP = "http"
"""Purpose of the server's thread that answers."""
_RUNS = (PYTHON, NATIVE)
_CHIP = ("chip",)
_OURS = tuple(layer for layer in LAYERS if layer != "chip")
FULL = 0.1
"""Share of the pages that may be left where requests are said to wait for pages."""


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the engine's statistics. waiting: requests by reason, where told. at_s: of a
    clock that never goes back."""

    stats: SchedulerStats
    utilization: float | None = None
    waiting: dict[str, float] | None = None
    at_s: float = 0.0


def facts_of(
    looks: Sequence[Evidence],
    polls: Sequence[Poll] = (),
    *,
    max_running: int = 0,
    refused: float = 0.0,
    load_core: float | None = None,
) -> Facts:
    """Facts of a stretch of time. refused: share of calls that got no answer for lack of room.

    load_core: of one core, what the load generator used; None where there is none.
    """
    each = [_of_look(look) for look in looks]
    told = mean(poll.utilization for poll in polls)
    merged = _averaged(each)
    return msgspec.structs.replace(
        merged,
        load_generator=load_core,
        kv_memory=_kv_memory(polls, max_running),
        queue_limit=max(_full_slots(polls, max_running) or 0.0, refused) if polls else None,
        chip=merged.chip if told is None else told,
        chip_source=_SEEN if told is None else "its telemetry",
    )


_SEEN = "the time of its thread in operators"


def _averaged(each: Sequence[Facts]) -> Facts:
    places = [(facts.lock or 0.0, facts.lock_place) for facts in each if facts.lock_place]
    shares: dict[str, Any] = {
        name: mean(getattr(facts, name) for facts in each)
        for name in Facts.__struct_fields__
        if name not in ("lock_place", "chip_source")
    }
    return Facts(**shares, lock_place=max(places)[1] if places else "")


def _of_look(look: Evidence) -> Facts:
    """What one look says."""
    engine, server = look.process("engine"), look.process("server")
    if engine is None or server is None:
        return Facts()
    loop = engine.thread(LOOP) or engine.thread(STEPS)
    steps, http = engine.thread(STEPS) or loop, server.thread(HTTP)
    path = [thread for thread in {id(t): t for t in (loop, steps, http)}.values() if thread]
    lock, place = _worst_lock(path)
    busy = 0.0 if http is None else http.share(_RUNS)
    texts = 0.0 if http is None else http.share(_RUNS, ("text",))
    return Facts(
        lock=lock,
        lock_place=place,
        page_faults=max((thread.share([FAULT]) for thread in path), default=None),
        other_programs=_others(look, engine, server, path),
        chip=None if steps is None else _in_chip(steps),
        tokenizer=busy if texts >= busy / 2 else 0.0,
        http=busy if texts < busy / 2 else 0.0,
        scheduler=None if steps is None or loop is None else _scheduler(steps, loop),
        interpreter=max((thread.interpreter_wait for thread in path), default=None),
        idle=None if loop is None else loop.share([IO], _OURS),
    )


def _worst_lock(threads: Iterable[ThreadSeen]) -> tuple[float, str]:
    worst, place = 0.0, ""
    for thread in threads:
        share = thread.share([LOCK])
        if share > worst:
            spots = [spot for spot in thread.spots if spot.state == LOCK]
            worst, place = share, max(spots, key=lambda spot: spot.share).place if spots else ""
    return worst, place


def _in_chip(steps: ThreadSeen) -> float:
    return steps.share((PYTHON, NATIVE, NATIVE_WAIT, IO), _CHIP)


def _scheduler(steps: ThreadSeen, loop: ThreadSeen) -> float:
    """The chip has nothing to do while Python of ours runs: beside it, or where it waits for it."""
    ours = steps.share(_RUNS, _OURS)
    if steps is loop:
        return ours
    return ours + min(steps.share([HANDOVER], _OURS), loop.share(_RUNS))


def _others(
    look: Evidence, engine: ProcessSeen, server: ProcessSeen, path: Sequence[ThreadSeen]
) -> float | None:
    """Cores that others use, as far as a thread of ours waits for a core."""
    cores = look.machine.core_busy
    if not cores:
        return None
    own = sum(process.core_seconds / process.seconds for process in (engine, server))
    others = max(0.0, sum(cores) - own) / len(cores)
    return min(others, max((thread.queued for thread in path), default=0.0))


def _kv_memory(polls: Sequence[Poll], max_running: int) -> float | None:
    """Retractions to requests that ran, or the time in which free slots wait for pages."""
    if not polls:
        return None
    waits = [_waits_for_pages(poll, max_running) for poll in polls]
    first, last = polls[0].stats, polls[-1].stats
    retracted = last.retractions - first.retractions
    ran = max(1, max(poll.stats.running for poll in polls))
    return max(sum(waits) / len(waits), min(1.0, retracted / ran))


def _waits_for_pages(poll: Poll, max_running: int) -> bool:
    if poll.waiting is not None:
        return poll.waiting.get("pages", 0) > 0
    stats = poll.stats
    room = stats.pages_free + stats.pages_cached
    return stats.queued > 0 and stats.running < max_running and room < FULL * stats.pages_total


def _full_slots(polls: Sequence[Poll], max_running: int) -> float | None:
    if not polls:
        return None
    full = [_waits_for_slots(poll, max_running) for poll in polls]
    return sum(full) / len(full)


def _waits_for_slots(poll: Poll, max_running: int) -> bool:
    if poll.waiting is not None:
        return poll.waiting.get("slots", 0) > 0
    return poll.stats.queued > 0 and poll.stats.running >= max_running
