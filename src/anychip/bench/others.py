"""What servers that are not ours tell on /metrics: vLLM's, SGLang's and llama.cpp's own names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from anychip.bench.diagnose import Finding
from anychip.bench.load.calls import LoadError
from anychip.bench.server_view import NOT_OURS, Getter, mean

POLL_S = 0.25
WAITING_SHARE = 0.5
"""Share of the readings in which requests wait, from which the queue is said to be a cause."""
FULL = 0.9
"""Share of the cache in use from which it is said to be full."""

_NAMES: Mapping[str, Sequence[str]] = {
    "running": (
        "vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing",
    ),
    "waiting": (
        "vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred",
    ),
    "used": (
        "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "preempted": ("vllm:num_preemptions_total",),
    "asked": ("vllm:prefix_cache_queries_total",),
    "hit": ("vllm:prefix_cache_hits_total", "llamacpp:prompt_tokens_cached_total"),
    "computed": ("llamacpp:prompt_tokens_total",),
    "generated": (
        "vllm:generation_tokens_total", "sglang:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
    ),
}  # fmt: skip
"""Series by what they tell; the first that is there counts, summed over engines and models, and
the share of the cache averaged."""

_NOT_TOLD = (
    "device utilization",
    "scheduler or operators",
    "pool fragmentation",
    "lock contention",
    "page migration",
)
"""Looks that need a server of ours."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look; None where the server does not tell. running, waiting: requests; used: share of
    the cache. The others count since its start: preempted requests; prompt tokens that were looked
    for in the prefix cache, found, and, where it counts those instead, computed; tokens generated.
    """

    running: float | None = None
    waiting: float | None = None
    used: float | None = None
    preempted: float | None = None
    asked: float | None = None
    hit: float | None = None
    computed: float | None = None
    generated: float | None = None
    at_s: float = 0.0

    @property
    def tells(self) -> bool:
        """Whether anything is known."""
        return self.running is not None or self.waiting is not None


def reading(text: str) -> Reading:
    """Of a page of metrics; nothing known where it is none, or none of a server that is known."""
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:  # what the parser raises for what is no page of metrics
        return Reading()
    values: dict[str, list[float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        values.setdefault(sample.name, []).append(float(sample.value))
    first = {
        figure: next((values[name] for name in names if name in values), None)
        for figure, names in _NAMES.items()
    }
    found = {figure: sum(many) for figure, many in first.items() if many is not None}
    if first["used"] is not None:
        found["used"] /= len(first["used"])
    return Reading(**found, at_s=time.monotonic())


async def read_other(client: Getter) -> Reading:
    """Raises LoadError where there is no /metrics."""
    return reading((await client.get("/metrics", beside=True)).decode(errors="replace"))


class OtherWatching:
    """`async with`: readings until the block is left; none where the server has no metrics."""

    def __init__(self, client: Getter) -> None:
        self._client, self._ended = client, asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.readings: list[Reading] = []

    async def __aenter__(self) -> OtherWatching:
        self._task = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        if self._task is not None:
            await self._task

    @property
    def running(self) -> float | None:
        """Requests that held a slot, mean."""
        return mean(one.running for one in self.readings)

    async def _read(self) -> None:
        while not self._ended.is_set():
            try:
                found = await read_other(self._client)
            except LoadError:
                return  # said once, when the scan began
            if not found.tells:
                return
            self.readings.append(found)
            waiting = asyncio.ensure_future(self._ended.wait())
            await asyncio.wait({waiting}, timeout=POLL_S)
            waiting.cancel()


async def see_other(client: Getter, seconds: float) -> list[Reading]:
    """Readings over some seconds. Raises LoadError where nothing at all can be told."""
    await client.get("/models")  # or it is no such server, and that is what is wrong
    without = f"{NOT_OURS}; `anychip scan` loads it and tells how it scales"
    found: list[Reading] = []
    until = time.monotonic() + seconds
    while not found or time.monotonic() < until:
        try:
            found.append(await read_other(client))
        except LoadError as error:
            raise LoadError(f"{without}. Its metrics cannot be read: {error}") from error
        if not found[-1].tells:
            raise LoadError(f"{without}. On /metrics is no series of vLLM, SGLang or llama.cpp")
        await asyncio.sleep(POLL_S)
    return found


def diagnose_other(found: Sequence[Reading]) -> list[Finding]:
    """The looks that can be taken, then those that cannot."""
    unknown = [
        Finding(name=name, verdict="unknown", evidence="not told by this server")
        for name in _NOT_TOLD
    ]
    return [_queue(found), _memory(found), _hits(found[-1]), *unknown]


def _queue(found: Sequence[Reading]) -> Finding:
    running = mean(one.running for one in found) or 0.0
    waits = [one.waiting for one in found if one.waiting is not None]
    if not waits:
        return Finding(name="queue", verdict="unknown", evidence=f"{running:.1f} run; not told")
    share = sum(one > 0 for one in waits) / len(waits)
    evidence = (
        f"{running:.1f} run and {sum(waits) / len(waits):.1f} wait, on average;"
        f" somebody waits in {share:.0%} of {len(waits)} readings{_rate(found)}"
    )
    if share < WAITING_SHARE:
        return Finding(name="queue", verdict="fine", evidence=evidence)
    return Finding(
        name="queue",
        verdict="found",
        evidence=evidence,
        meaning="requests wait for a slot or for room in the cache most of the time",
        step="anychip scan shows whether more slots would help: read its running column",
    )


def _rate(found: Sequence[Reading]) -> str:
    first, last = found[0], found[-1]
    if first.generated is None or last.generated is None or last.at_s <= first.at_s:
        return ""
    return f"; {(last.generated - first.generated) / (last.at_s - first.at_s):.0f} tokens/s"


def _memory(found: Sequence[Reading]) -> Finding:
    used = mean(one.used for one in found)
    first, last = found[0].preempted, found[-1].preempted
    ended = (last - first) if first is not None and last is not None else None
    if used is None and ended is None:
        return Finding(name="KV memory", verdict="unknown", evidence="not told by this server")
    told = [] if used is None else [f"{used:.0%} of the cache in use, on average"]
    told += [] if ended is None else [f"{max(0.0, ended):.0f} requests lost their place meanwhile"]
    evidence = ", ".join(told)
    if not (ended or (used or 0.0) >= FULL):
        return Finding(name="KV memory", verdict="fine", evidence=evidence)
    return Finding(
        name="KV memory",
        verdict="found",
        evidence=evidence,
        meaning="the cache of keys and values is full: requests wait for room, or start anew",
        step="give it more memory for the cache, or fewer requests at once",
    )


def _hits(last: Reading) -> Finding:
    """Since the server's start: a few seconds have few prompts."""
    name = "prefix cache"
    if last.hit is None or (last.asked is None and last.computed is None):
        return Finding(name=name, verdict="unknown", evidence="not told by this server")
    asked = last.hit + (last.computed or 0.0) if last.asked is None else last.asked
    share = last.hit / asked if asked else 0.0
    evidence = f"{share:.0%} of {asked:,.0f} prompt tokens found since its start"
    return Finding(name=name, verdict="fine", evidence=evidence)
