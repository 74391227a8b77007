"""The fake chip: who it is, what it can do, which faults it shows on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.chips.fake.build import FakeBuild
from anychip.chips.fake.memory import CHIP, FACTS, Code, FakeMemory, FakeTelemetry, Store
from anychip.chips.fake.memory_slow import CoarseMemory, HostBacking
from anychip.chips.fake.operators import (
    FakeQueue,
    FakeWeights,
    Faults,
    Slowness,
    Stream,
    strict_table,
)
from anychip.chips.fake.operators_lock import BusyLock
from anychip.contract.build import Finding
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.device_check import check_in_child
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, ContractError, ErrorFact, ErrorKind
from anychip.contract.registration import (
    Capabilities,
    Chip,
    Device,
    Option,
    Probe,
    parse_bytes,
    register_chip,
)

FLOATS = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
SCALED = (DType.INT8, DType.FLOAT8_E4M3)
"""What caches hold with scales, where the chip has its own of each of CACHE_OPERATORS."""
CACHE_OPERATORS = ("kv_write", "kv_copy_pages", "paged_attention", "sink_attention")


@register_chip(CHIP, contract=(0, 5))
class FakeChip(Chip):
    """A strict device in software."""

    vendor = "anychip"
    options = (
        Option("memory", str, "2G", "device memory: bytes, or with K, M or G behind"),
        Option("primitives_only", bool, False, "offer primitives alone, the rest is composed"),
        Option("without", str, "", "operators to leave out, separated by commas"),
        Option("fail_allocation", int, 0, "the n-th allocation finds no memory (0: none)"),
        Option("fail_launch", int, 0, "the n-th launch fails in its kernel (0: none)"),
        Option("hang_launch", int, 0, "the n-th launch never ends (0: none)"),
        Option("lose_device_at", int, 0, "the device is lost at the n-th launch (0: never)"),
        Option("watchdog", float, 30.0, "seconds until a wait without timeout gives up on a hang"),
        Option("lock_ms", float, 0.0, "each launch takes a lock that is held this long at a time"),
        Option("block_step", int, 0, "blocks of memory are powers of this number (0: exact)"),
        Option("disk_pages", int, 0, "pages that each wait reads from disk, as if memory paged"),
        Option("poison_seed", int, 0, "0: poison is NaN; otherwise noise from this seed"),
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        counts = ("fail_allocation", "fail_launch", "hang_launch", "lose_device_at")
        faults = Faults(**{n: values[n] for n in counts}, watchdog=values["watchdog"])
        capacity = parse_bytes(CHIP, "memory", values["memory"])
        if capacity == 0:
            raise ContractError(f"chip '{CHIP}': option memory=0: a device has some memory")
        step = values["block_step"]
        self._slowness = _slowness(values)
        self._store = Store(capacity, values["poison_seed"], faults.fail_allocation, step)
        stream = Stream(faults, self._store.verify_all, self._slowness)
        memory = CoarseMemory if step else FakeMemory
        self.memory = memory(self._store, stream.put, stream.wait)
        self.queue = FakeQueue(stream)
        self.operators = strict_table(
            self._store,
            stream,
            primitives_only=values["primitives_only"],
            without=_operators(values["without"]),
        )
        self.weights = FakeWeights(self.memory)
        self.build = FakeBuild()
        self.telemetry = FakeTelemetry(self.memory)

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Always there: one device."""
        return Probe((Device(0, "a device in software"),), versions=FakeBuild().versions())

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> FakeChip:
        """Nothing to fix but the options. Raises ContractError where one makes no sense."""
        return cls(options)

    @classmethod
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, doubled, back out, in a child process."""
        return check_in_child(cls, device, timeout, options)

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """The device's own codes."""
        if code in FACTS:
            return FACTS[Code(code)]
        text = f"unknown code {code}"
        return ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, text)

    def capabilities(self) -> Capabilities:
        """Everything that hostops computes."""
        return Capabilities(
            activation_dtypes=FLOATS,
            cache_dtypes=(*FLOATS, *self._scaled()),
            page_sizes=(16, 1, 2, 4, 8, 32, 64, 128),
            facts={"kernels": "numpy, one thread of control", "queue": "runs at the next wait"},
        )

    def _scaled(self) -> tuple[DType, ...]:
        served = all(self.operators.of(op) for op in CACHE_OPERATORS)
        return SCALED if served else ()

    def close(self) -> None:
        """Forget all memory; end what works beside the queue."""
        self._store.close()
        self._slowness.close()


def _slowness(values: Mapping[str, Any]) -> Slowness:
    for name, least in (("lock_ms", 0), ("disk_pages", 0), ("block_step", 2)):
        if values[name] and values[name] < least:
            text = f"option {name}={values[name]}: it is 0, or at least {least}"
            raise ContractError(f"chip '{CHIP}': {text}")
    return Slowness(BusyLock(values["lock_ms"] / 1000), HostBacking(values["disk_pages"]))


def _operators(text: str) -> frozenset[str]:
    names = frozenset(n.strip() for n in text.split(",") if n.strip())
    unknown = sorted(names - set(CATALOGUE))
    if unknown:
        raise ContractError(f"chip '{CHIP}': option without: no operator is named '{unknown[0]}'")
    return names
