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
import time
from collections.abc import Callable, Iterator
from typing import Any

from command_line import count, need

BASE = ("bfloat16", "q8_0", "q4_0", "q4_1")
COLD = 96 << 20
"""Bytes of a weight's copies: more than the last cache."""
TURNS, SECONDS = 7, 0.03


class Product:
    """`linear` of one format and size, and of as many copies of its weight as COLD holds."""

    def __init__(self, chip: Any, format: str, size: int, rows: int, dtype: str) -> None:
        from anychip.conform.operator_parts import random_parts
        from anychip.contract.tensor import Shape
        from anychip.contract.weights import WeightUse

        self.chip, self.format, self.size, self.rows = chip, format, size, rows
        shape: Shape = (size, size)
        uses = frozenset({WeightUse.LINEAR})
        self.packed = chip.weights.plan((format,), (shape,), uses).nbytes
        copies = max(2, COLD // self.packed) if rows == 1 else 1
        parts = random_parts(format, (size,), size, "bench").parts
        self.file = parts[0].data.nbytes
        self.weights = [chip.weights.prepare(parts, uses) for _ in range(copies)]
        self.calls = [self._launch(weight, dtype) for weight in self.weights]

    def _launch(self, weight: Any, dtype: str) -> Callable[[], object]:
        from anychip.contract.dtype import DType
        from anychip.contract.operators import Call, CallSpec
        from anychip.contract.tensor import Tensor

        def tensor(shape: tuple[int, ...], kind: DType, byte: int) -> Tensor:
            nbytes = kind.itemsize * max(1, shape[0] * (shape[1] if len(shape) > 1 else 1))
            made = Tensor(shape, kind, buffer=self.chip.memory.allocate(nbytes))
            self.chip.memory.fill(made, byte)
            return made

        held = DType(dtype)
        x, y = (tensor((self.rows, self.size), held, byte) for byte in (0x3E, 0))
        specs = {"x": x.spec, "weight": weight.spec}
        spec = CallSpec("linear", specs, {"y": y.spec}, {})
        chosen = next(i for i in self.chip.operators.of("linear") if i.declines(spec) is None)
        scratch = tensor((chosen.workspace(spec),), DType.UINT8, 0)
        return chosen.prepare(Call(spec, {"x": x, "weight": weight}, {"y": y}, scratch))

    def seconds(self) -> float:
        """Of one call, over SECONDS of them."""
        begun, done = time.perf_counter(), 0
        while True:
            for call in self.calls:
                call()
            done += len(self.calls)
            spent = time.perf_counter() - begun
            if spent > SECONDS:
                return spent / done

    def release(self) -> None:
        """Give the weights back."""
        for weight in self.weights:
            self.chip.weights.release(weight)


def measured(chip: Any, formats: tuple[str, ...], asked: argparse.Namespace) -> Iterator[str]:
    """Lines of a table."""
    for size in asked.sizes:
        for rows in asked.rows:
            products = [Product(chip, f, size, rows, asked.dtype) for f in formats]
            times: list[list[float]] = [[] for _ in products]
            for _ in range(TURNS + 1):  # the first turn warms up
                for product, seen in zip(products, times, strict=True):
                    seen.append(product.seconds())
            for product, seen in zip(products, times, strict=True):
                yield _line(product, statistics.median(seen[1:]))
                product.release()


def _line(product: Product, seconds: float) -> str:
    rate = product.packed / seconds / 1e9
    work = 2 * product.rows * product.size**2 / seconds / 1e9
    figures = (
        f"{seconds * 1e6:,.0f} | {rate:.1f} | {work:.0f} | {product.packed / product.file:.3f}"
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
