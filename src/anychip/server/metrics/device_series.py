"""The device's figures, from its last reading in the engine process."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from anychip.figures import CopyFigures, DeviceFigures, PoolFigures, RunFigures, committed_share
from anychip.http.families import Families, Samples, labelled
from anychip.server.metrics.sources import EngineView

_MEMORY = ("capacity", "used", "free", "headroom")
_TOLD = (("utilization", "ratio"), ("temperature", "celsius"), ("power", "watts"))
_POOL = ("used", "cached", "asked")
_SYNCHRONIZED = "synchronized"
"""How operators are timed: by the host's clock, with a wait after each."""


def device_series(families: Families, engine: EngineView) -> Iterator[Family]:
    """Families of the table DEVICE."""
    found, planned = engine.figures, dict(engine.info.memory)
    yield from _of_reading(families, found.device)
    yield families.one("anychip_device_memory_committed_ratio", committed_share(planned))
    planned.pop("total", None)
    kinds = {kind.replace(" ", "_"): float(count) for kind, count in planned.items()}
    yield families.many("anychip_device_memory_planned_bytes", labelled(kinds))
    yield from _of_pool(families, found.run.pool)
    yield from _of_copies(families, found.run.copies)
    yield from _of_operators(families, found.run)


def _of_reading(families: Families, reading: DeviceFigures | None) -> Iterator[Family]:
    memory = reading.memory if reading is not None and reading.memory is not None else ()
    for place, use in enumerate(_MEMORY):
        values: Samples = {}
        if memory and reading is not None:
            values[(reading.source,)] = memory[place]
        yield families.many(f"anychip_device_memory_{use}_bytes", values)
    for kind, unit in _TOLD:
        value = None if reading is None else getattr(reading, kind)
        yield families.one(f"anychip_device_{kind}_{unit}", value)


def _of_pool(families: Families, pool: PoolFigures | None) -> Iterator[Family]:
    for use in _POOL:
        value = None if pool is None else getattr(pool, use)
        yield families.one(f"anychip_device_pool_{use}_bytes", value)
    share = None if pool is None else pool.fragmentation
    yield families.one("anychip_device_pool_fragmentation_ratio", share)


def _of_copies(families: Families, copies: CopyFigures | None) -> Iterator[Family]:
    nbytes: Samples = {}
    seconds: Samples = {}
    if copies is not None:
        nbytes = {("in",): copies.bytes_in, ("out",): copies.bytes_out}
        seconds = {("in",): copies.seconds_in, ("out",): copies.seconds_out}
    yield families.many("anychip_device_copy_bytes_total", nbytes)
    yield families.many("anychip_device_copy_seconds_total", seconds)


def _of_operators(families: Families, run: RunFigures) -> Iterator[Family]:
    seconds: Samples = {}
    calls: Samples = {}
    for operator, found in run.operators.items():
        seconds[operator, _SYNCHRONIZED] = found.seconds
        calls[operator, _SYNCHRONIZED] = found.calls
    yield families.many("anychip_device_operator_seconds_total", seconds)
    yield families.many("anychip_device_operator_calls_total", calls)
