"""The cpu chip's products against torch's oneDNN, at the shapes of three models, by turns.

    .venv/bin/python bench/products.py [--formats bfloat16 w8a8 ...] [--models SmolLM2-135M ...]
        [--rows 1 64 ...] [--threads 1 2] [--isa I]

Every product meets one copy of its weight after the other, more than a cache holds, as the layers
of a network. Ours and theirs take turns in one process, and the median of the turns' ratios is
told: what disturbs the machine disturbs both. Behind a turn of several threads theirs gets time to
fall asleep. Theirs has its weights packed beforehand. It has no products of ggml's blocks: those
are set against its bfloat16; nor are rows rounded to int8 in its call, as they are in ours. A cell:
GFLOP/s of ours, and in brackets how many times theirs that is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from command_line import count, need
from costs.peaks import Peaks, measured_peaks
from costs.product import ChipWeights, Shape, TorchWeights, Turns

MODELS = {
    "SmolLM2-135M": {
        **{"qkv": (960, 576), "o": (576, 576), "gate/up": (3072, 576)},
        **{"down": (576, 1536), "head": (49152, 576)},
    },
    "Qwen2.5-0.5B": {
        **{"qkv": (1152, 896), "o": (896, 896), "gate/up": (9728, 896)},
        **{"down": (896, 4864), "head": (151936, 896)},
    },
    "Llama-3.2-1B": {
        **{"qkv": (3072, 2048), "o": (2048, 2048), "gate/up": (16384, 2048)},
        **{"down": (2048, 8192), "head": (128256, 2048)},
    },
}
"""Product -> (N, K)."""
PARTS = tuple(MODELS["SmolLM2-135M"])
ROWS = (1, 4, 8, 16, 32, 64, 128, 512)
HEAD_ROWS = 64
"""The head meets no more: of a prompt one row samples."""
FORMATS = ("bfloat16", "float32", "w8a8", "q8_0", "q4_1")
REST = 0.03
"""Seconds behind a turn of several threads: a pool of OpenMP goes on looking for work for some
milliseconds, in our turn on a core that is ours."""
PEER = {"float32": "float32", "w8a8": "int8"}
"""What theirs computes in, where that is not bfloat16."""


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--formats", nargs="+", choices=FORMATS, default=FORMATS, help="of weights [all]")
    add("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS), help="[all]")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="[all]")
    add("--rows", nargs="+", type=count, default=ROWS, help="[1 4 8 16 32 64 128 512]")
    add("--threads", nargs="+", type=count, default=(1, 2), help="[1 2]")
    add("--turns", type=count, default=5, help="of which the median counts [5]")
    add("--milliseconds", type=count, default=15, help="of a turn, at least [15]")
    add("--isa", help="instruction set of ours [the best that this processor has]")
    return parser.parse_args()


def opened(threads: int, isa: str | None) -> Any:
    """The chip with so many threads. Raises ChipError."""
    from anychip.chips.cpu.registration import CpuChip
    from anychip.contract.registration import read_options

    given = {"threads": str(threads), **({"isa": isa} if isa else {})}
    return CpuChip.open(0, read_options(CpuChip, given))


class Contest:
    """Ours and theirs of one format and shape, with any number of rows."""

    def __init__(self, asked: argparse.Namespace, chip: Any, format: str, shape: Shape) -> None:
        threads = chip.capabilities().facts["threads"]
        self._asked, self._format = asked, format
        self._rest = REST if int(threads) > 1 else 0.0
        self.ours = ChipWeights(chip, format, shape)
        self._theirs = TorchWeights(PEER.get(format, "bfloat16"), shape, int(threads))

    def seconds(self, rows: int) -> tuple[float, float]:
        """Of ours, median; how many times as long theirs took, median of the turns."""
        dtype = "float32" if self._format == "float32" else "bfloat16"
        pair = self.ours.turns(rows, dtype), self._theirs.turns(rows)
        seen = [self._turn(pair) for _ in range(self._asked.turns + 1)][1:]
        mine = statistics.median(ours for ours, _ in seen)
        return mine, statistics.median(theirs / ours for ours, theirs in seen)

    def _turn(self, pair: tuple[Turns, Turns]) -> tuple[float, float]:
        ours, theirs = (one.seconds(self._asked.milliseconds / 1e3) for one in pair)
        time.sleep(self._rest)
        return ours, theirs


def line(asked: argparse.Namespace, contest: Contest, shape: Shape, peak: float) -> str:
    """Cells of one shape: every number of rows, then bytes at the fewest and share at the most."""
    cells, rates, reads = [], [], []
    for rows in asked.rows:
        if shape.head and rows > HEAD_ROWS:
            cells.append("")
            continue
        seconds, ratio = contest.seconds(rows)
        rates.append(rows * shape.flops / seconds / 1e9)
        reads.append(contest.ours.packed / seconds / 1e9)
        cells.append(f"{rates[-1]:.0f} ({ratio:.2f})")
    share = f"{max(rates) / peak:.0%}" if peak and rates else ""
    return " | ".join([*cells, f"{reads[0]:.0f}" if reads else "", share])


def table(asked: argparse.Namespace, format: str, peaks: Peaks) -> Iterator[str]:
    """Lines of one format."""
    rows = " | ".join(str(r) for r in asked.rows)
    yield f"\n{format}:\n"
    yield f"| model | product | N × K | threads | {rows} | GB/s at {asked.rows[0]} | of the peak |"
    yield "|" + "---|" * (6 + len(asked.rows))
    for model in asked.models:
        for part in asked.parts:
            n, k = MODELS[model][part]
            shape = Shape(n, k, part == "head")
            for threads in asked.threads:
                chip = opened(threads, asked.isa)
                contest = Contest(asked, chip, format, shape)
                cells = line(asked, contest, shape, threads * peaks.of(format))
                yield f"| {model} | {part} | {n} × {k} | {threads} | {cells} |"
                contest.ours.release()
                chip.close()


def main() -> int:
    """Measure and tell, a line at a time."""
    asked = arguments()
    need("anychip", "torch")
    peaks = measured_peaks()
    print(peaks.told(), flush=True)
    for format in asked.formats:
        for text in table(asked, format, peaks):
            print(text, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
