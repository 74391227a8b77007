"""What the machine can do now: how fast memory is read, how fast matrices are multiplied.

    python bench/race/machine.py BYTES [BYTES ...]

Prints one line of JSON. A rate is the best of several passes, since others use the machine as well.
read_gb_s: an array of that many bytes, one part a core, each reduced by numpy (maximum or sum,
whichever is fastest): what the processor's caches keep from one pass to the next counts, as it does
for the weights of a model. product_gflops: square products of random numbers (a processor may run
at a higher clock where they are all ones or zeros), in bfloat16 by torch where it is installed, and
in float32 by numpy. They are smaller where they would take long: torch multiplies bfloat16 a
thousand times more slowly on some processors than on others. product_side tells how large.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
SIDE, LEAST_SIDE = 2048, 256
ENOUGH_SECONDS = 0.25
LEAST_BYTES = 64
PASSES, LEAST_SECONDS = 5, 0.4
REDUCTIONS: dict[str, tuple[type, Callable[..., object]]] = {
    "maximum of int32": (np.int32, np.maximum.reduce),
    "maximum of uint8": (np.uint8, np.maximum.reduce),
    "maximum of int64": (np.int64, np.maximum.reduce),
    "sum of int64": (np.int64, np.add.reduce),
}


def best_seconds(call: Callable[[], object]) -> float:
    """The fastest of several calls, behind one that is not counted."""
    call()
    best, begun, passes = float("inf"), time.perf_counter(), 0
    while passes < PASSES or time.perf_counter() - begun < LEAST_SECONDS:
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
        passes += 1
    return best


def read_rate(nbytes: int, threads: int) -> tuple[float, str]:
    """GB/s from an array of that many bytes, and the reduction that was fastest."""
    whole = np.ones(nbytes // LEAST_BYTES * LEAST_BYTES, np.uint8)
    rates = {}
    with ThreadPoolExecutor(threads) as pool:
        for name, (kind, reduce) in REDUCTIONS.items():
            parts: list[Array] = np.array_split(whole.view(kind), threads)
            rates[name] = whole.nbytes / best_seconds(partial(_each, pool, reduce, parts)) / 1e9
    fastest = max(rates, key=lambda name: rates[name])
    return rates[fastest], fastest


def _each(pool: ThreadPoolExecutor, reduce: Callable[..., object], parts: list[Array]) -> None:
    list(pool.map(reduce, parts))


def random_square(side: int) -> npt.NDArray[np.float32]:
    """Normal numbers, the same each time: [side, side]."""
    return np.random.default_rng(1).standard_normal((side, side), np.float32)


def product_rate(square_of: Callable[[int], Any]) -> tuple[float, int]:
    """GFLOP/s, and the side of the squares that were multiplied.

    The side doubles up to SIDE, for as long as one product takes less than ENOUGH_SECONDS.
    """
    side, seconds = LEAST_SIDE, 0.0
    while True:
        square = square_of(side)
        seconds = best_seconds(lambda: square @ square)  # noqa: B023 (called at once)
        if side == SIDE or seconds > ENOUGH_SECONDS:
            return 2 * side**3 / 1e9 / seconds, side
        side *= 2


def product_rates() -> dict[str, tuple[float, int]]:
    """Rate and side by dtype; bfloat16 is missing where torch is not installed."""
    found = {"float32": product_rate(random_square)}
    try:
        import torch
    except ModuleNotFoundError:
        print("torch is not installed: no rate of bfloat16 products", file=sys.stderr)
        return found
    halves = product_rate(lambda side: torch.from_numpy(random_square(side)).to(torch.bfloat16))
    return found | {"bfloat16": halves}


def described() -> dict[str, object]:
    """Processor, cores, memory and system of this machine."""
    told = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*:\s*(.*)$", told, re.M)
    flags = re.search(r"^flags\s*:\s*(.*)$", told, re.M)
    known = {"amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx512f", "avx2"}
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)
    return {
        "processor": name[1] if name else platform.machine(),
        "features": sorted(known & set(flags[1].split())) if flags else [],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def nbytes(text: str) -> int:
    """A size of which a part is read. Raises ArgumentTypeError."""
    if not text.isdigit() or int(text) < LEAST_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {LEAST_BYTES} on")
    return int(text)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="+", type=nbytes, metavar="BYTES", help="64 or more")
    facts, threads = described(), len(os.sched_getaffinity(0))
    reads = {size: read_rate(size, threads) for size in parser.parse_args().sizes}
    facts["read_gb_s"] = {size: rate for size, (rate, _) in reads.items()}
    facts["read_by"] = {size: how for size, (_, how) in reads.items()}
    products = product_rates()
    facts["product_gflops"] = {kind: rate for kind, (rate, _) in products.items()}
    facts["product_side"] = {kind: side for kind, (_, side) in products.items()}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
