"""What keeps a running server from being faster: looks in an order, each with its evidence.

The device's utilization is read first, then it is decided whether scheduler or operators are the
bottleneck; the hidden causes, which no single figure shows, come behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from anychip.bench.facts import Poll, facts_of
from anychip.bench.load.calls import LoadError
from anychip.bench.saturation import CAUSES, Facts, Saturated, saturated
from anychip.bench.server_view import (
    DeviceReading,
    Getter,
    ServerInfo,
    ask_device,
    ask_info,
    ask_stacks,
)
from anychip.engine.evidence import Evidence, ProcessSeen
from anychip.figures import MOST_COMMITTED

Verdict = Literal["fine", "found", "unknown"]
HERTZ = 50.0
LONGEST_LOOK_S = 30.0

IDLE = 0.9
"""Share of the time without anything to compute from which the server has no work."""
WASTED = 0.25
"""Share of the pool's blocks that nobody asked for. Classes in four steps waste a fifth at most."""
IN_PIECES = 0.5
"""Of the free memory, what the largest allocation must reach, or it lies in pieces."""
FAULTS_A_SECOND = 10.0
MOVES_A_SECOND = 1000.0
"""Pages read from a disk, and pages moved between memories, a second."""
LITTLE_HIT, MANY_TOKENS = 0.05, 10_000
"""Hit rate that is said to be low, once so many prompt tokens have come."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a server over some seconds."""

    info: ServerInfo
    device: DeviceReading
    looks: tuple[Evidence, ...]
    polls: tuple[Poll, ...]

    @property
    def facts(self) -> Facts:
        """Shares of the time."""
        return facts_of(self.looks, self.polls, max_running=self.info.engine.max_running)

    @property
    def engines(self) -> list[ProcessSeen]:
        """The engine process in each look."""
        found = [look.process("engine") for look in self.looks]
        return [process for process in found if process is not None]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One look. evidence: its figures. meaning, step: what they mean and what to do next, where
    something was found."""

    name: str
    verdict: Verdict
    evidence: str
    meaning: str = ""
    step: str = ""


async def see(client: Getter, seconds: float) -> Seen:
    """Read a server for some seconds. Raises LoadError where it is not reachable, or not ours."""
    polls: list[Poll] = []
    looks: list[Evidence] = []

    async def look() -> None:
        left = seconds
        while left > 0:
            part = min(left, LONGEST_LOOK_S)
            looks.append(await ask_stacks(client, part, HERTZ))
            left -= part

    looking = asyncio.ensure_future(look())
    try:
        while not looking.done():
            info, device = await ask_info(client), await ask_device(client)
            polls.append(
                Poll(stats=info.stats, utilization=device.utilization, waiting=device.waiting)
            )
            await asyncio.wait({looking}, timeout=0.25)
        await looking
    except LoadError:
        looking.cancel()
        raise
    return Seen(info=info, device=device, looks=tuple(looks), polls=tuple(polls))


def diagnose(seen: Seen) -> list[Finding]:
    """Every look, in order."""
    facts = seen.facts
    bottleneck = _bottleneck(seen, facts)
    return [
        _utilization(facts),
        bottleneck,
        *(take(seen, facts) for take in _HIDDEN),
        *_others(facts),
    ]


def something_found(findings: Sequence[Finding]) -> bool:
    """Whether any look found something."""
    return any(finding.verdict == "found" for finding in findings)


def _utilization(facts: Facts) -> Finding:
    name = "device utilization"
    if facts.chip is None:
        return Finding(name=name, verdict="unknown", evidence="nobody tells")
    told = f"{facts.chip:.0%} by {facts.chip_source}"
    if (facts.idle or 0.0) >= IDLE:
        return Finding(name=name, verdict="fine", evidence=f"{told}; the server has no work")
    return Finding(name=name, verdict="fine", evidence=told)


def _bottleneck(seen: Seen, facts: Facts) -> Finding:
    """A busy chip is where a server should be; an idle one that waits for our Python is not."""
    name = "scheduler or operators"
    chip, scheduler = facts.chip or 0.0, facts.scheduler or 0.0
    evidence = f"chip {chip:.0%}, Python of the engine while it waits {scheduler:.0%}"
    limits = {cause.figure: cause.least for cause in CAUSES}
    if (facts.idle or 0.0) >= IDLE:
        evidence = f"neither: {facts.idle:.0%} of the time there was nothing to compute"
        return Finding(name=name, verdict="fine", evidence=evidence)
    if chip >= limits["chip"]:
        return Finding(
            name=name,
            verdict="fine",
            evidence=evidence,
            meaning="operators: the chip computes nearly all the time, as it should; only faster"
            " operators make it faster",
            step=f"anychip coverage --backend {seen.info.engine.backend} --model-path MODEL",
        )
    if scheduler >= limits["scheduler"]:
        return Finding(
            name=name,
            verdict="found",
            evidence=evidence,
            meaning="scheduler: the chip waits for Python of the engine's loop",
            step="GET /debug/stacks names the lines",
        )
    return Finding(name=name, verdict="fine", evidence=f"neither reaches its limit: {evidence}")


def _fragmentation(seen: Seen, facts: Facts) -> Finding:
    device, name = seen.device, "pool fragmentation"
    wasted, free, largest = device.fragmentation, device.free, device.largest
    told = [] if wasted is None else [f"{wasted:.0%} of the pool's blocks were not asked for"]
    apart = None
    if free and largest is not None:
        apart = largest / free
        told.append(f"the largest allocation is {apart:.0%} of the {free / 2**20:,.0f} MiB free")
    if not told:
        return Finding(name=name, verdict="unknown", evidence="the chip tells no memory figures")
    evidence = "; ".join(told)
    if (wasted or 0.0) >= WASTED or (apart is not None and apart < IN_PIECES):
        return Finding(
            name=name,
            verdict="found",
            evidence=evidence,
            meaning="memory is there and cannot be used: blocks are larger than what is asked for,"
            " or lie in pieces",
            step="finer size classes in the chip's pool (contract.pool has them); until then a"
            " restart gives one piece again",
        )
    return Finding(name=name, verdict="fine", evidence=evidence)


def _locks(seen: Seen, facts: Facts) -> Finding:
    name = "lock contention"
    if facts.lock is None:
        return Finding(name=name, verdict="unknown", evidence="no stacks were seen")
    evidence = f"waits for locks: {facts.lock:.0%} of a thread's time{_cores(seen)}"
    for found in saturated(facts):
        if found.name == "lock":
            switches = sum(process.voluntary_switches for process in seen.engines)
            seconds = sum(process.seconds for process in seen.engines)
            return Finding(
                name=name,
                verdict="found",
                evidence=f"{evidence}; {switches / seconds:,.0f} voluntary switches a second",
                meaning=found.text,
                step=f"{found.cause.step}; anychip scan shows what it costs",
            )
    return Finding(name=name, verdict="fine", evidence=evidence)


def _cores(seen: Seen) -> str:
    """How evenly the cores are used: a lock for all leaves most of them idle."""
    each = [look.machine.core_busy for look in seen.looks if look.machine.core_busy]
    if not each:
        return ""
    means = [sum(shares) / len(shares) for shares in zip(*each, strict=False)]
    return f"; cores busy {min(means):.0%} to {max(means):.0%}"


def _paging(seen: Seen, facts: Facts) -> Finding:
    """Pages that were brought in or moved meanwhile; a full memory alone is a warning."""
    name, seconds = "page migration", sum(process.seconds for process in seen.engines)
    if not seconds:
        return Finding(name=name, verdict="unknown", evidence="the engine process was not seen")
    faults = sum(process.major_faults for process in seen.engines) / seconds
    counts = [look.machine.pages_migrated for look in seen.looks]
    told = [count for count in counts if count is not None]
    moved = sum(told) / seconds if told else None
    swap, committed = seen.engines[-1].swap_bytes, seen.info.committed
    full = committed is not None and committed > MOST_COMMITTED
    verdict: Verdict = "fine"
    meaning = step = ""
    if faults >= FAULTS_A_SECOND or (moved or 0) >= MOVES_A_SECOND or (swap and full):
        verdict = "found"
        meaning = "memory in use is brought in while the engine works, which shows as jitter"
    elif full:
        verdict = "unknown"
        meaning = "nothing is moved now; under long load, memory that the host backs would be"
    if verdict != "fine":
        step = (
            f"keep {1 - MOST_COMMITTED:.0%} free: a smaller --mem-fraction-static or"
            " --max-total-tokens; end what else uses memory"
        )
    evidence = _paged(faults, moved, swap, facts.page_faults or 0.0, committed)
    return Finding(name=name, verdict=verdict, evidence=evidence, meaning=meaning, step=step)


def _paged(
    faults: float, moved: float | None, swap: int, waits: float, committed: float | None
) -> str:
    told = [f"{faults:,.1f} pages a second read from a disk"]
    untold = "the kernel does not tell how many were moved between memories"
    told += [untold if moved is None else f"{moved:,.0f} moved between memories"]
    told += [f"{swap / 2**20:,.0f} MiB swapped out"] if swap else []
    told += [f"{waits:.0%} of the time waiting for pages"] if waits else []
    told += [] if committed is None else [f"weights and KV take {committed:.0%} of the memory"]
    return ", ".join(told)


def _hits(seen: Seen, facts: Facts) -> Finding:
    name, stats = "prefix cache", seen.info.stats
    if not stats.prompt_tokens:
        return Finding(name=name, verdict="fine", evidence="no prompt yet")
    rate = stats.cached_tokens / stats.prompt_tokens
    evidence = f"hit rate {rate:.0%} of {stats.prompt_tokens:,} prompt tokens"
    evidence += f", {stats.evicted_pages:,} pages evicted"
    evicts = stats.evicted_pages > stats.pages_total
    if rate < LITTLE_HIT and stats.prompt_tokens >= MANY_TOKENS and evicts:
        return Finding(
            name=name,
            verdict="found",
            evidence=evidence,
            meaning="prefixes are gone before they are asked for again, or prompts share none",
            step="more cache (--mem-fraction-static, --enable-hierarchical-cache), or"
            " --schedule-policy lpm",
        )
    return Finding(name=name, verdict="fine", evidence=evidence)


def _queue(seen: Seen, facts: Facts) -> Finding:
    stats = [poll.stats for poll in seen.polls]
    running, queued = (
        sum(getattr(one, field) for one in stats) / len(stats) for field in ("running", "queued")
    )
    most = seen.info.engine.max_running
    evidence = f"{running:.1f} of {most} slots taken, {queued:.1f} requests wait, on average"
    retracted = stats[-1].retractions - stats[0].retractions
    evidence += f", {retracted} retracted" if retracted else ""
    for found in saturated(facts):
        if found.name in ("KV memory", "queue limit"):
            return _as_finding(found, "queue", evidence)
    return Finding(name="queue", verdict="fine", evidence=evidence)


_HIDDEN: tuple[Callable[[Seen, Facts], Finding], ...] = (
    _fragmentation,
    _locks,
    _paging,
    _hits,
    _queue,
)
_TOLD = frozenset(
    ("load generator", "lock", "memory paging", "KV memory", "queue limit", "chip", "scheduler")
)
"""Causes that other looks tell."""


def _others(facts: Facts) -> Iterator[Finding]:
    """What else of the table of causes is reached."""
    for found in saturated(facts):
        if found.name not in _TOLD:
            yield _as_finding(found, found.name, f"{found.share:.0%}")


def _as_finding(found: Saturated, name: str, evidence: str) -> Finding:
    return Finding(
        name=name,
        verdict="found",
        evidence=evidence,
        meaning=found.text,
        step=found.cause.step,
    )
