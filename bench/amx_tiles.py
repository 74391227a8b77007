"""Tile instructions that a product of the cpu chip asks of AMX, and the bound that follows.

    .venv/bin/python bench/amx_tiles.py [--formats bfloat16 w8a8 q4_1] [--models SmolLM2-135M ...]
        [--parts qkv down ...] [--rows 16 64 512]

Needs no AMX: the kernels run over emulated tiles, which count; exact, the same on any machine with
avx512_bf16. Cycles are those of Intel's optimization manual for Sapphire Rapids: a product 16, a
load 8 (from the first cache), one that passes the first cache 33, a store 16, a shape and its
release 217. Products, loads and stores overlap, shapes do not. So the bound is a calculation, of
one core, and no measurement.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from command_line import count, need
from costs.product import ChipWeights, Shape
from products import MODELS, PARTS, opened

if TYPE_CHECKING:
    from anychip.chips.cpu.build_tiles import TileCounts

FORMATS = ("bfloat16", "w8a8", "q8_0", "q4_1")
HEADINGS = (
    *("weights", "model", "product", "N × K", "rows", "products"),
    *("loads, of a product", "passing", "stores", "shapes"),
    *("at most, of the unit's rate", "where passing loads cost 8"),
)
PRODUCT, LOAD, PASSING_LOAD, STORE, SHAPE = 16, 8, 33, 16, 204 + 13
"""Cycles."""
PASSING_ASSUMED = (PASSING_LOAD, LOAD)
"""Of a passing load: as Intel says, and where it cost no more than another."""


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--formats", nargs="+", choices=FORMATS, default=("bfloat16", "w8a8"), help="of weights")
    add("--models", nargs="+", choices=tuple(MODELS), default=("SmolLM2-135M",), help="[SmolLM2]")
    add("--parts", nargs="+", choices=PARTS, default=PARTS[:4], help="[all but the head]")
    add("--rows", nargs="+", type=count, default=(16, 32, 48, 64, 512), help="[16 32 48 64 512]")
    return parser.parse_args()


def share(counts: TileCounts, passing: int) -> float:
    """Of the unit's rate: at most so much, where a passing load costs `passing` cycles."""
    products = PRODUCT * counts.products
    loads = LOAD * counts.loads + passing * counts.passing_loads
    busy = max(products, loads, STORE * counts.stores)
    return products / (busy + SHAPE * counts.configurations)


def counted(weights: ChipWeights, rows: int) -> TileCounts:
    """Of one call."""
    from anychip.chips.cpu.build_tiles import tile_counts

    library = weights.chip.capabilities().facts["kernels"]
    turns = weights.turns(rows, "bfloat16")
    before = tile_counts(library)
    turns.seconds(0.0)  # a first call that is not timed, and one
    both = tile_counts(library) - before
    return type(both)(*(number // 2 for number in both))


def lines(asked: argparse.Namespace, format: str) -> Iterator[str]:
    """A line of the table for each shape and number of rows."""
    chip = opened(1, "amx-emulated")
    for model in asked.models:
        for part in asked.parts:
            n, k = MODELS[model][part]
            weights = ChipWeights(chip, format, Shape(n, k, part == "head"), copies=1)
            for rows in asked.rows:
                found = counted(weights, rows)
                each = max(found.products, 1)
                told = [f"{number / each:.2f}" for number in found[2:5]]
                bounds = [f"{share(found, passing):.0%}" for passing in PASSING_ASSUMED]
                cells = [format, model, part, f"{n} × {k}", rows, f"{found.products:,}", *told]
                yield " | ".join(map(str, [*cells, found.configurations, *bounds]))
            weights.release()
    chip.close()


def main() -> int:
    """Count and tell, a line at a time."""
    asked = arguments()
    need("anychip")
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    for format in asked.formats:
        for text in lines(asked, format):
            print(f"| {text} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
