"""One run: a fresh server, a warm-up, an empty cache, the trace on its time axis, figures."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from anychip.bench.load.calls import Answer, LoadError, Run
from anychip.bench.load.client import LoadClient
from anychip.bench.load.figures import Slo, most_at_once
from anychip.bench.load.loops import closed_loop, open_loop
from anychip.bench.load.prompts import Shape, calls_of
from anychip.bench.load.scaling import Scaling
from anychip.bench.load.served import ask_server
from anychip.bench.load.traces import Trace

from .servers import Server

WARM_CALLS, WARM_AT_ONCE = 8, 4
"""Before each run; the cache is emptied behind them."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run. throughput: tokens of whole answers a second, to the last one's end. ttft_s,
    tpot_s: means; None where no answer has one. goodput: requests a second within the limits, None
    without limits. failed: calls without a whole answer, failure: the first one's reason. at_once:
    the most under way together. late_s: how late the client itself sent at worst."""

    throughput: float
    ttft_s: float | None
    tpot_s: float | None
    goodput: float | None
    failed: int
    seconds: float
    at_once: int
    late_s: float
    failure: str = ""
    hit_rate: float | None = None

    def figures(self) -> dict[str, float]:
        """Those that are there, by the words of --objective."""
        found = {
            "throughput": self.throughput,
            "ttft": self.ttft_s,
            "tpot": self.tpot_s,
            "goodput": self.goodput,
        }
        return {name: value for name, value in found.items() if value is not None}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What every run is asked."""

    trace: Trace
    scaling: Scaling
    speed: float
    slo: Slo


Measure = Callable[[Sequence[str], Path], Measured]
"""The words of a server and its log -> figures. Raises ServerFailed."""


def check() -> None:
    """LoadError without aiohttp: told before anything is measured."""
    LoadClient("http://127.0.0.1", "")


def measure(asked: Asked, words: Sequence[str], log: Path) -> Measured:
    """Start the server, load it, end it. Raises ServerFailed, KeyboardInterrupt."""
    with Server(words, log) as server:
        try:
            run = asyncio.run(_loaded(asked, server.url))
        except LoadError as error:
            raise server.failed(str(error)) from error
        if run.interrupted:
            raise KeyboardInterrupt
        found = measured(run, asked.slo)
        if found.failed == len(run.answers):
            raise server.failed(f"no call was answered: {found.failure}")
    return found


async def _loaded(asked: Asked, url: str) -> Run:
    async with LoadClient(url, "") as client:
        served = await ask_server(client)
        client.model = served.model
        shape = Shape(vocab=served.vocab, reserved=served.eos_ids, scaling=asked.scaling)
        calls = calls_of(asked.trace, shape).calls
        warm = await closed_loop(calls[:WARM_CALLS], client, concurrency=WARM_AT_ONCE)
        if warm.interrupted:
            return warm
        await _flush(client)
        return await open_loop(calls, client, speed=asked.speed)


async def _flush(client: LoadClient) -> None:
    """The answers are over a moment before the engine has let go of them."""
    for _ in range(100):
        try:
            await client.post("/flush_cache", {}, beside=True)
        except LoadError:
            await asyncio.sleep(0.05)
        else:
            return
    await client.post("/flush_cache", {}, beside=True)


def measured(run: Run, slo: Slo) -> Measured:
    """From answers to figures. LoadError where nothing was sent."""
    if not run.answers:
        raise LoadError("no request was sent, so there is nothing to tell")
    good = [answer for answer in run.answers if answer.failure is None]
    lost = [answer.failure for answer in run.answers if answer.failure is not None]
    kept = sum(slo.kept(answer) for answer in good)
    return Measured(
        throughput=sum(answer.output_tokens for answer in good) / max(run.seconds, 1e-9),
        ttft_s=_mean([answer.ttft_s for answer in good]),
        tpot_s=_mean([answer.tpot_s for answer in good]),
        goodput=kept / max(run.seconds, 1e-9) if slo.asked else None,
        failed=len(lost),
        failure=lost[0].text if lost else "",
        seconds=run.seconds,
        at_once=most_at_once(run.answers),
        late_s=max(answer.lateness_s for answer in run.answers),
        hit_rate=_hit_rate(good),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    held = [value for value in values if value is not None]
    return math.fsum(held) / len(held) if held else None


def _hit_rate(good: Sequence[Answer]) -> float | None:
    told = [a for a in good if a.cached_tokens is not None and a.prompt_tokens]
    total = sum(answer.prompt_tokens or 0 for answer in told)
    return sum(answer.cached_tokens or 0 for answer in told) / total if total else None
