"""What tests of tune share: plans and runs that are made up, without a server."""

from __future__ import annotations

from anychip.bench.tune.budget import Budget
from anychip.bench.tune.judge import Series
from anychip.bench.tune.measure import Measured
from anychip.bench.tune.plan import Configuration, Load, Plan, Variable

RUNNING, CHUNK = "--max-running-requests", "--chunked-prefill-size"
LOAD = Load(
    trace="t.csv",
    digest="00ff",
    requests=10,
    speed=1.0,
    scaling="lengths as they are",
    prompt_tokens=100,
    answer_tokens=50,
    span_s=1.0,
)
VARIABLES = (
    Variable(flag=RUNNING, base="2", values=("4", "8")),
    Variable(flag=CHUNK, base="1024", values=("512",)),
)


def plan(**changes) -> Plan:
    values = {
        "base": ("--backend", "fake", RUNNING, "2"),
        "model": "tiny, 9 bytes",
        "fingerprint_id": "abc",
        "load": LOAD,
        "variables": VARIABLES,
        "repeats": 3,
        "objective": "throughput",
    }
    return Plan(**{**values, **changes})


def budget() -> Budget:
    return Budget(
        memory={"total": 2**30, "cache pages": 2**20},
        page_size=16,
        pages=100,
        mean=15.0,
        longest=40,
        window=8,
        at_longest=5,
        requests=10,
        running=2,
        chunk=1024,
        context=512,
        device="a device",
        fingerprint={"chip": {"name": "fake"}, "versions": {"driver": "1"}},
    )


def ran(throughput: float, *, ttft: float = 0.5, tpot: float = 0.01, **changes) -> Measured:
    values = {"goodput": None, "failed": 0, "seconds": 5.0, "at_once": 3, "late_s": 0.0}
    return Measured(throughput=throughput, ttft_s=ttft, tpot_s=tpot, **{**values, **changes})


def series(values, *changes, failed: int = 0, name: str = "throughput") -> Series:
    return Series(
        configuration=Configuration(tuple(changes)), values={name: tuple(values)}, failed=failed
    )
