"""The cpu chip's products in every weight format that it computes in, side by side in one process.

    .venv/bin/python bench/weight_formats.py [--formats q4_k q6_k ...] [--sizes 1024 4096]
        [--rows 1 64] [--dtype bfloat16] [--threads N] [--isa I]

`linear` with K = N = size. One row reads weights that no cache holds: copies of the weight, a turn
each, as the layers of a network. The formats take turns as well, so that a machine whose speed
drifts drifts under all; the median of the turns is told. GB/s: of the weight's bytes as packed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

from command_line import count, need
from costs.product import ChipWeights, Shape

BASE = ("bfloat16", "q8_0", "q4_0", "q4_1")
TURNS, SECONDS = 7, 0.03


class Product:
    """`linear` of one format and size. One row reads weights that no cache holds."""

    def __init__(self, chip: Any, format: str, size: int, rows: int, dtype: str) -> None:
        self.format, self.size, self.rows = format, size, rows
        self.weights = ChipWeights(chip, format, Shape(size, size), copies=0 if rows == 1 else 1)
        self.turns = self.weights.turns(rows, dtype)


def measured(chip: Any, formats: tuple[str, ...], asked: argparse.Namespace) -> Iterator[str]:
    """Lines of a table."""
    for size in asked.sizes:
        for rows in asked.rows:
            products = [Product(chip, f, size, rows, asked.dtype) for f in formats]
            times: list[list[float]] = [[] for _ in products]
            for _ in range(TURNS + 1):  # the first turn warms up
                for product, seen in zip(products, times, strict=True):
                    seen.append(product.turns.seconds(SECONDS))
            for product, seen in zip(products, times, strict=True):
                yield _line(product, statistics.median(seen[1:]))
                product.weights.release()


def _line(product: Product, seconds: float) -> str:
    weights = product.weights
    rate = weights.packed / seconds / 1e9
    work = 2 * product.rows * product.size**2 / seconds / 1e9
    figures = (
        f"{seconds * 1e6:,.0f} | {rate:.1f} | {work:.0f} | {weights.packed / weights.file:.3f}"
    )
    return f"| {product.size} | {product.rows} | {product.format} | {figures} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--formats", nargs="+", help="[all that the chip has, float ones aside]")
    parser.add_argument("--sizes", nargs="+", type=count, default=[1024, 4096], help="[1024 4096]")
    parser.add_argument("--rows", nargs="+", type=count, default=[1, 64], help="[1 64]")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=count, help="[all cores]")
    parser.add_argument("--isa", help="[the best that this processor has]")
    asked = parser.parse_args()
    need("anychip")
    from anychip.chips.cpu.registration import CpuChip
    from anychip.contract.registration import read_options

    given = {"threads": asked.threads, "isa": asked.isa}
    options = read_options(CpuChip, {k: str(v) for k, v in given.items() if v})
    chip = CpuChip.open(0, options)
    there = chip.capabilities().weight_formats
    formats = tuple(asked.formats or (*BASE, *(f for f in there[3:] if f not in BASE)))
    print("| K = N | rows | format | us a call | GB/s | GFLOP/s | packed / file |")
    print("|---|---|---|---|---|---|---|")
    for line in measured(chip, formats, asked):
        print(line, flush=True)
    chip.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
