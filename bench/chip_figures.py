"""docs/metrics.md whole: the catalogue, then what each chip tells, opened and asked.

    .venv/bin/python bench/chip_figures.py cpu fake fake:block_step=4 torch kunlun > docs/metrics.md

A chip with options is CHIP:NAME=VALUE,... Where a slot is empty or a reading is None, the series of
that column are absent. tests/observe holds the rows of cpu, fake and torch to this, and the Kunlun
chip's tests its row.
"""

from __future__ import annotations

import argparse
import array
import time
from collections.abc import Sequence

from anychip.contract.discovery import open_chip
from anychip.contract.dtype import DType
from anychip.contract.layer import empty_slots
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.router.metrics.catalogue import ROUTER
from anychip.server.metrics.page import page

TITLE = "## What each chip tells"
BEFORE = """
Opened and asked; names are those above without `anychip_`. `-`: the chip does not tell, and the \
series is absent. `kunlun` was asked on the simulated SDK. `torch` is its device `cpu` here; of a \
card it tells memory, copies by the card's clock, and the pool of torch's caching allocator, which \
was only seen with a double of torch's module. `cpu`, and torch on the host, have no pool: memory \
goes back to the system when it is freed. Operators' seconds are the core's: every chip has them.
"""
COLUMNS = (
    *("chip", "`device_memory_*`", "`device_utilization_ratio`", "`device_temperature_celsius`"),
    *("`device_power_watts`", "`device_pool_*`", "`device_copy_bytes_total`"),
    "`device_copy_seconds_total`",
)
_SIZE = 1 << 20
_PATIENCE_S = 0.5


def told(chip: Chip, name: str) -> tuple[str, ...]:
    """A row: what this opened chip tells, under a name for people. A MiB goes there and back. A
    share of time is none before some has passed, so a reading is waited for."""
    reading = None if chip.telemetry is None else chip.telemetry.read()
    until = time.monotonic() + _PATIENCE_S
    while reading is not None and reading.utilization is None and time.monotonic() < until:
        time.sleep(0.05)
        reading = chip.telemetry.read()
    cells = [name, "-" if reading is None else "yes"]
    for kind in ("utilization", "temperature", "power"):
        cells.append("-" if reading is None or getattr(reading, kind) is None else "yes")
    empty = empty_slots(type(chip.memory))
    cells.append("-" if "statistics" in empty else "yes")
    if "traffic" in empty:
        return (*cells, "-", "-")
    return (*cells, "yes", "yes" if _seconds(chip) else "0")


def _seconds(chip: Chip) -> bool:
    """Whether copies have seconds."""
    buffer = chip.memory.allocate(_SIZE)
    tensor = Tensor((_SIZE,), DType.UINT8, buffer=buffer)
    chip.memory.copy_in(tensor, memoryview(array.array("B", bytes(_SIZE))))
    chip.memory.copy_out(tensor, memoryview(bytearray(_SIZE)))
    chip.memory.free(buffer)
    chip.queue.synchronize(None)
    moved = chip.memory.traffic()
    return moved.seconds_in > 0 and moved.seconds_out > 0


def line(cells: Sequence[str]) -> str:
    """A row of Markdown."""
    return f"| {' | '.join(cells)} |"


def _asked(word: str) -> tuple[str, ...]:
    name, _, text = word.partition(":")
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    options = {key: value for key, _, value in pairs}
    chip = open_chip(name, 0, options)
    shown = {key: value for key, value in options.items() if "/" not in value}
    behind = "".join(f", `{key}={value}`" for key, value in shown.items())
    try:
        return told(chip, f"`{name}`{behind}")
    finally:
        chip.close()


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chips", nargs="+", metavar="CHIP[:NAME=VALUE,...]")
    rows = [_asked(word) for word in parser.parse_args().chips]
    table = [line(COLUMNS), "|" + "---|" * len(COLUMNS), *map(line, rows)]
    print("\n".join([page({"Router": ROUTER}), TITLE, BEFORE, *table]))


if __name__ == "__main__":
    main()
