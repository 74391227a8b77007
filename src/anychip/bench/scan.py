"""A scan under way: level after level of so many requests at once, and what is seen meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Iterator
from typing import Protocol

import msgspec
import numpy as np

from anychip.bench.facts import facts_of
from anychip.bench.load.calls import Call, LoadError, Run
from anychip.bench.load.client import LoadClient
from anychip.bench.load.figures import figures_of
from anychip.bench.load.loops import closed_loop
from anychip.bench.others import OtherWatching, read_other
from anychip.bench.outage import READY_S, Outage, ready_again
from anychip.bench.saturation import Facts, saturated
from anychip.bench.scan_amounts import composed, steady
from anychip.bench.scan_found import Found, Level, Lost, found_of, gain
from anychip.bench.server_view import NOT_OURS, ServerInfo, ask_info, ask_stacks
from anychip.bench.watching import HERTZ, Watching

_LOOK_S, _SHORT_LOOK_S = 2.0, 0.25
_WORDS = ("red", "blue", "green", "north", "south", "river", "stone", "cloud", "seven", "paper")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is scanned. levels: requests at once, rising. seconds: of a level; requests: of a level
    instead, where not 0 (twice the level at least). input, output: tokens of a request."""

    levels: tuple[int, ...]
    seconds: float = 10.0
    requests: int = 0
    input: int = 128
    output: int = 64


class Watcher(Protocol):
    """Who is told how it goes on."""

    def begins(self, concurrency: int, number: int, of: int, left_s: float) -> None:
        """A level begins; left_s: about so long until the end of the scan."""

    def ended(self, level: Level) -> None:
        """A level is done."""

    def lost(self, level: Lost) -> None:
        """The server went away; it is waited for now."""


class _ServerLost(Exception):
    """Of the level that was under way."""


class _Load:
    """A load, and what this process used meanwhile. core: share of one."""

    def __init__(self, loop: Awaitable[Run]) -> None:
        self._loop, self.core = loop, 0.0

    async def run(self) -> Run:
        """Until its end."""
        used, begun = time.process_time(), time.monotonic()
        run = await self._loop
        self.core = (time.process_time() - used) / (time.monotonic() - begun)
        return run


class Scan:
    """One scan of one server over an open client. ready_s: how long a server that went away is
    waited for."""

    def __init__(
        self, client: LoadClient, plan: Plan, watcher: Watcher, *, ready_s: float = READY_S
    ) -> None:
        self._client, self._plan, self._watcher = client, plan, watcher
        self._ready_s = ready_s
        self._info: ServerInfo | None = None
        self._full = True  # answers run to their full length
        self._notes: list[str] = []
        self._levels: list[Level] = []
        self._lost: list[Lost] = []
        self._random = np.random.default_rng()

    async def run(self) -> Found:
        """Every level. Raises LoadError where the server cannot be loaded; Ctrl-C and the server's
        own end leave the levels so far."""
        interrupted, broken = False, ""
        try:
            await self._look_around()
            for number, concurrency in enumerate(self._plan.levels):
                self._watcher.begins(
                    concurrency, number, len(self._plan.levels), self._left_s(number)
                )
                await self._try_level(concurrency)
        except asyncio.CancelledError:
            if not self._levels:
                raise
            interrupted = True
        except LoadError as error:
            if not self._levels:
                raise
            broken = str(error)
        found = found_of(self._client.model, self._levels, self._notes)
        lost = tuple(self._lost)
        return msgspec.structs.replace(found, lost=lost, interrupted=interrupted, broken=broken)

    async def _try_level(self, concurrency: int) -> None:
        """Keep what it comes to; of one that is lost, wait for the server. Raises LoadError where
        it does not come back, or nothing is kept."""
        try:
            level = await self._level(concurrency)
        except _ServerLost as error:
            self._lost.append(Lost(concurrency=concurrency, why=str(error)))
            self._watcher.lost(self._lost[-1])
            ours = self._info is not None
            if not await ready_again(self._client, ours=ours, limit_s=self._ready_s):
                raise LoadError(
                    f"the server went away with {concurrency} requests at once, and was not ready"
                    f" again within {self._ready_s:g} s: {error}"
                ) from error
            if not self._levels and concurrency == self._plan.levels[-1]:
                raise LoadError(f"no level is whole: the server went away: {error}") from error
            return
        self._levels.append(level)
        self._watcher.ended(level)

    def _left_s(self, number: int) -> float:
        left = len(self._plan.levels) - number
        if self._plan.requests == 0:
            return left * self._plan.seconds
        took = [level.figures.seconds for level in self._levels]
        return left * took[-1] if took else 0.0

    async def _look_around(self) -> None:
        """Whether the server tells of its inside."""
        try:
            self._info = await ask_info(self._client)
            await ask_stacks(self._client, 0.1, HERTZ)
        except LoadError as error:
            why = NOT_OURS if self._info is None else f"no look at its threads: {error}"
            self._notes.append(f"cause not known: no evidence from this server ({why})")
            if self._info is None:
                await self._try_other()
            self._info = None

    async def _try_other(self) -> None:
        """What a server that is not ours takes and tells."""
        self._notes.append("prompts are random words, about a token each")
        if await self._is_refused():
            self._full = False
            # Whoever refuses that as well has another reason, which the first level tells.
            self._full = await self._is_refused()
        if not self._full:
            self._notes.append("it takes no ignore_eos: answers end where the model ends them")
        try:
            told = (await read_other(self._client)).tells
        except LoadError:
            told = False
        if told:
            self._notes.append("running: by its own /metrics")

    async def _is_refused(self) -> bool:
        """Whether the server takes no call with the fields of the scan."""
        call = Call(id="first", max_tokens=1, prompt=self._prompt(), params=self._params)
        failure = (await self._client.send(call, self._client.clock(), 0.0)).failure
        return failure is not None and failure.status in (400, 422)

    async def _level(self, concurrency: int) -> Level:
        outage, deaths = Outage(concurrency), await self._deaths()
        warm = self._calls(concurrency, concurrency, "warm")
        await self._check(await self._loaded(warm, concurrency, outage), outage, deaths)
        requests = max(self._plan.requests, 2 * concurrency) if self._plan.requests else None
        seconds = None if requests else self._plan.seconds
        calls = self._calls(concurrency, requests, "scan")
        load = _Load(self._loaded(calls, concurrency, outage, seconds))
        watching = Watching(self._client, self._look_s)
        if self._info is None:
            async with OtherWatching(self._client) as other:
                run = await load.run()
                await self._check(run, outage, deaths)
            return msgspec.structs.replace(
                self._told(concurrency, (run, seconds, load.core), watching), running=other.running
            )
        async with watching:
            run = await load.run()
        await self._check(run, outage, deaths)
        self._notes += [text for text in watching.troubles if text not in self._notes]
        return self._told(concurrency, (run, seconds, load.core), watching)

    async def _deaths(self) -> int | None:
        """How often the server's engine died; None of another server, or where it does not say."""
        if self._info is None:
            return None
        try:
            return (await ask_info(self._client)).engine_deaths
        except LoadError:
            return None

    async def _check(self, run: Run, outage: Outage, deaths: int | None) -> None:
        """Raises _ServerLost where the server went away, LoadError where not a single call was
        answered, CancelledError for a load that was interrupted: closed loops keep that to
        themselves."""
        if run.interrupted:
            raise asyncio.CancelledError
        if outage.why or await self._deaths() != deaths:
            raise _ServerLost(outage.why or "its engine died")
        failures = [answer.failure for answer in run.answers if answer.failure is not None]
        if failures and len(failures) == len(run.answers):
            text = f"{failures[0].kind}: {failures[0].text}"
            hint = "; see --input-tokens and --output-tokens" if "context" in text else ""
            raise LoadError(f"no answer with {run.concurrency} requests at once: {text}{hint}")

    def _loaded(
        self, calls: Iterator[Call], concurrency: int, outage: Outage, seconds: float | None = None
    ) -> Awaitable[Run]:
        """A closed loop that ends where the server goes away."""
        lasting = itertools.takewhile(lambda _: not outage.why, calls)
        return closed_loop(
            lasting, self._client, concurrency=concurrency, seconds=seconds, told=outage.hear
        )

    @property
    def _look_s(self) -> float:
        plan = self._plan
        return _SHORT_LOOK_S if plan.requests else min(_LOOK_S, 0.8 * plan.seconds)

    def _told(
        self, concurrency: int, loaded: tuple[Run, float | None, float], watched: Watching
    ) -> Level:
        run, seconds, used = loaded
        figures = figures_of(run)
        throughput = steady(run, seconds)
        refused = figures.errors.get("busy", 0) / figures.requests
        facts, running, composition = Facts(load_generator=used), None, None
        if self._info is not None:
            facts = facts_of(
                watched.looks,
                watched.polls,
                max_running=self._info.engine.max_running,
                refused=refused,
                load_core=used,
            )
            composition = composed(watched)
            running = sum(p.stats.running for p in watched.polls) / max(1, len(watched.polls))
        before = self._levels[-1] if self._levels else None
        found = tuple(saturated(facts))
        return Level(
            concurrency=concurrency,
            figures=figures,
            throughput=throughput,
            gain=None if before is None else gain(before, concurrency, throughput),
            running=running,
            composition=composition,
            facts=facts,
            causes=tuple(one.name for one in found),
            texts=tuple(one.text for one in found),
            steps=tuple(one.cause.step for one in found),
        )

    def _calls(self, level: int, count: int | None, name: str) -> Iterator[Call]:
        """Calls with prompts of their own in each scan, so that no prefix is found in a cache."""
        number = 0
        while count is None or number < count:
            yield Call(
                id=f"{name}-{level}-{number}",
                max_tokens=self._plan.output,
                prompt=self._prompt(),
                params=self._params,
            )
            number += 1

    def _prompt(self) -> tuple[int, ...] | str:
        random, size = self._random, self._plan.input
        if self._info is None:
            return " ".join(_WORDS[index] for index in random.integers(0, len(_WORDS), size))
        # From the middle of the vocabulary: special tokens stand at its ends.
        first = self._info.engine.vocab_size // 4
        return tuple(random.integers(first, 2 * first + 1, size).tolist())

    @property
    def _params(self) -> dict[str, object]:
        return {"temperature": 0, "ignore_eos": True} if self._full else {"temperature": 0}
