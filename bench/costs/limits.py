"""What a step costs at the limit of this machine: bytes at the measured rate of reads, FLOPs at the
measured rate of products, whichever takes longer."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from race.roofline import CACHE_BYTES, Work

LEAST_READ, MOST_READ = 1 << 16, 1 << 31
"""Bytes between which the rate of reads is measured: beyond, no cache keeps a part that counts."""

DTYPES = ("bfloat16", "float32")
"""Of the products, the first that was measured."""

PATIENCE = 1800.0
"""Seconds for all rates."""


@dataclass(frozen=True)
class Step:
    """One step's work. bytes: read once, the weights and the cache that is attended to. flops:
    multiplications and additions of floats; of int8 by int8 as many as take as long."""

    bytes: int
    flops: int


def decode_step(work: Work, batch: int, positions: int, element_bytes: int = CACHE_BYTES) -> Step:
    """A token for each of `batch` sequences. positions: attended to, of all of them together.

    element_bytes: of the cache.
    """
    cached = work.cache_bytes // CACHE_BYTES * element_bytes
    flops = batch * (work.linear_flops + work.head) + positions * work.attention
    return Step(work.weight_bytes + positions * cached, flops)


def prefill_step(work: Work, tokens: int, element_bytes: int = CACHE_BYTES) -> Step:
    """One prompt in one chunk: every weight is read once, every position of the cache too."""
    cached = work.cache_bytes // CACHE_BYTES * element_bytes
    return Step(work.weight_bytes + tokens * cached, work.prefill_flops(tokens))


@dataclass(frozen=True)
class Limit:
    """Seconds that the bytes and the FLOPs take at the measured rates, one without the other."""

    read_s: float
    product_s: float

    @property
    def seconds(self) -> float:
        """The step cannot be faster."""
        return max(self.read_s, self.product_s)

    @property
    def bound_by(self) -> str:
        """Which of the two it waits for."""
        return "reads" if self.read_s >= self.product_s else "products"

    def reached(self, seconds: float) -> float:
        """The share of the limit that a step of so many seconds reaches: 1 at the limit."""
        return self.seconds / seconds


def read_size(nbytes: int) -> int:
    """The size at which the rate is measured for so many bytes: the nearest of two sizes an
    octave, so that many steps share a measurement."""
    nearest = 2 ** (round(2 * math.log2(max(nbytes, 1))) / 2)
    return min(max(int(nearest), LEAST_READ), MOST_READ)


@dataclass(frozen=True)
class Rates:
    """Of this machine. facts: as race/machine.py prints them, rates in GB/s and GFLOP/s."""

    facts: Mapping[str, object]

    def read(self, nbytes: int) -> float:
        """Bytes a second, as measured at the nearest size."""
        rates = _numbers(self.facts, "read_gb_s")
        nearest = min(rates, key=lambda size: abs(math.log(int(size) / read_size(nbytes))))
        return rates[nearest] * 1e9

    @property
    def dtype(self) -> str:
        """Of the products whose rate is the limit."""
        return next(name for name in DTYPES if name in _numbers(self.facts, "product_gflops"))

    @property
    def product(self) -> float:
        """FLOP a second."""
        return _numbers(self.facts, "product_gflops")[self.dtype] * 1e9

    def limit(self, step: Step) -> Limit:
        """Of one step."""
        return Limit(step.bytes / self.read(step.bytes), step.flops / self.product)


def _numbers(facts: Mapping[str, object], key: str) -> dict[str, float]:
    found = facts[key]
    if not isinstance(found, Mapping):
        raise TypeError(f"{key} is {found!r}")
    return {str(name): float(rate) for name, rate in found.items()}


def measured(steps: Iterable[Step], known: Rates | None = None) -> Rates:
    """Rates of the sizes of these steps, each measured once, in a process of its own.

    known: rates that need not be measured again. Raises CalledProcessError, TimeoutExpired.
    """
    sizes = {str(read_size(step.bytes)) for step in steps}
    if known is not None:
        sizes -= set(_numbers(known.facts, "read_gb_s"))
        if not sizes:
            return known
    program = Path(__file__).parents[1] / "race" / "machine.py"
    line = [sys.executable, str(program), *sorted(sizes, key=int)]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, timeout=PATIENCE)
    facts: dict[str, object] = json.loads(done.stdout)
    if known is None:
        return Rates(facts)
    reads = _numbers(known.facts, "read_gb_s") | _numbers(facts, "read_gb_s")
    return Rates({**known.facts, "read_gb_s": reads})
