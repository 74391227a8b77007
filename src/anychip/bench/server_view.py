"""What a server tells of itself: its facts, its figures, where its threads are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from anychip.bench.load.calls import LoadError
from anychip.engine.evidence import Evidence
from anychip.engine.messages import EngineInfo
from anychip.figures import committed_share
from anychip.plan import SchedulerStats

NOT_OURS = "this server is not one of ours: it tells nothing of its inside"

_DEVICE = "anychip_device_"
_WAITING = "anychip_requests_waiting"
_SERIES = {
    "utilization": _DEVICE + "utilization_ratio",
    "capacity": _DEVICE + "memory_capacity_bytes",
    "free": _DEVICE + "memory_free_bytes",
    "largest": _DEVICE + "memory_headroom_bytes",
    "pool_used": _DEVICE + "pool_used_bytes",
    "pool_cached": _DEVICE + "pool_cached_bytes",
    "fragmentation": _DEVICE + "pool_fragmentation_ratio",
}


class NotOurs(LoadError):
    """The server answers, and is none of ours."""


class Getter(Protocol):
    """What asks a server, as `LoadClient` does."""

    async def get(self, path: str, *, beside: bool = False) -> bytes:
        """The body of a good answer. Raises LoadError."""


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`/server_info` of ours, as far as it is needed here."""

    version: str
    model: str
    config: dict[str, Any]
    engine: EngineInfo
    stats: SchedulerStats
    state: str
    pids: dict[str, int | None]
    engine_deaths: int = 0

    @property
    def committed(self) -> float | None:
        """Share of the device's memory that weights and cache take."""
        memory = self.engine.memory
        return committed_share(memory) if memory.get("total") else None


class DeviceReading(msgspec.Struct, frozen=True, kw_only=True):
    """What /metrics tells beside the books; None where it does not. Bytes; shares of 0 to 1.

    largest: the largest single allocation that would succeed. fragmentation: share of the pool's
    blocks that nobody asked for. waiting: requests by the reason that they wait for.
    """

    utilization: float | None = None
    capacity: float | None = None
    free: float | None = None
    largest: float | None = None
    pool_used: float | None = None
    pool_cached: float | None = None
    fragmentation: float | None = None
    waiting: dict[str, float] | None = None


async def ask_info(client: Getter) -> ServerInfo:
    """Raises LoadError; NotOurs where the server is none of ours."""
    try:
        body = await client.get("/server_info", beside=True)
    except LoadError as error:
        if error.status in (404, 405):
            raise NotOurs(f"{NOT_OURS} ({error})") from error
        raise
    try:
        return msgspec.json.decode(body, type=ServerInfo)
    except msgspec.MsgspecError as error:
        raise NotOurs(f"{NOT_OURS} ({error})") from error


async def ask_device(client: Getter) -> DeviceReading:
    """From /metrics; all None where it has no such series. Raises LoadError."""
    body = await client.get("/metrics", beside=True)
    return device_reading(body.decode(errors="replace"))


def device_reading(text: str) -> DeviceReading:
    """The device's series of a page of metrics."""
    names = {series: name for name, series in _SERIES.items()}
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:  # what the parser raises for what is no page of metrics
        return DeviceReading()
    samples = [sample for family in families for sample in family.samples]
    found = {names[one.name]: float(one.value) for one in samples if one.name in names}
    waiting = {
        one.labels.get("reason", ""): float(one.value) for one in samples if one.name == _WAITING
    }
    return DeviceReading(**found, waiting=waiting or None)


async def ask_stacks(client: Getter, seconds: float, hertz: float) -> Evidence:
    """Where both processes' threads are for some seconds. Raises LoadError."""
    path = f"/debug/stacks?seconds={seconds:g}&hertz={hertz:g}"
    return msgspec.json.decode(await client.get(path, beside=True), type=Evidence)


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
