"""One product of the cpu chip, and the same one by torch's oneDNN: what is timed by turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

COLD = 96 << 20
"""Bytes of a weight's copies: more than the last cache, as the layers of a network are."""
DRAWN = 512
"""Rows of a weight that are drawn; the others repeat them."""


@dataclass(frozen=True)
class Shape:
    """y [rows, n] = x [rows, k] @ weight [n, k].T. head: its results are float32."""

    n: int
    k: int
    head: bool = False

    @property
    def flops(self) -> int:
        """Of one row: multiplications and additions."""
        return 2 * self.n * self.k


def copies_of(nbytes: int) -> int:
    """Copies of a weight of so many bytes that no cache holds together."""
    return max(2, -(-COLD // nbytes))


class Turns:
    """Calls that are made one after the other, again and again."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = itertools.cycle(calls)

    def seconds(self, least: float) -> float:
        """Of one call, over at least so many seconds of them; a first one is not counted."""
        next(self._calls)()
        begun, done = time.perf_counter(), 0
        while True:
            next(self._calls)()
            done += 1
            spent = time.perf_counter() - begun
            if spent > least:
                return spent / done


class ChipWeights:
    """Copies of a random weight on a chip, until `release`. packed, file: bytes of one."""

    def __init__(self, chip: Any, format: str, shape: Shape, copies: int = 0) -> None:
        """copies: 0 for as many as no cache holds."""
        from anychip.conform.operator_parts import random_parts
        from anychip.contract.weights import HostWeight, WeightUse

        self.chip, self.shape = chip, shape
        uses = frozenset({WeightUse.LM_HEAD if shape.head else WeightUse.LINEAR})
        drawn = random_parts(format, (min(shape.n, DRAWN),), shape.k, "bench").parts[0]
        rows = np.frombuffer(drawn.data, np.uint8).reshape(drawn.shape[0], -1)
        raw = np.resize(rows, (shape.n, rows.shape[1])).reshape(-1)
        part = HostWeight(format, (shape.n, shape.k), raw.data)
        self.packed = chip.weights.plan((format,), (part.shape,), uses).nbytes
        self.file = raw.nbytes
        count = copies or copies_of(self.packed)
        self.weights = [chip.weights.prepare((part,), uses) for _ in range(count)]

    def turns(self, rows: int, dtype: str) -> Turns:
        """`linear`, or `lm_head`, of rows of this type with one copy after the other."""
        return Turns(list(self._calls(rows, dtype)))

    def _calls(self, rows: int, dtype: str) -> Iterator[Callable[[], object]]:
        from anychip.contract.dtype import DType
        from anychip.contract.operators import Call, CallSpec

        shape, held = self.shape, DType(dtype)
        x = self._tensor((rows, shape.k), held, 0x3E)
        y = self._tensor((rows, shape.n), DType.FLOAT32 if shape.head else held, 0)
        name = "lm_head" if shape.head else "linear"
        for weight in self.weights:
            spec = CallSpec(name, {"x": x.spec, "weight": weight.spec}, {"y": y.spec}, {})
            chosen = next(i for i in self.chip.operators.of(name) if i.declines(spec) is None)
            scratch = self._tensor((chosen.workspace(spec),), DType.UINT8, 0)
            yield chosen.prepare(Call(spec, {"x": x, "weight": weight}, {"y": y}, scratch))

    def _tensor(self, shape: tuple[int, ...], kind: Any, byte: int) -> Any:
        from anychip.contract.tensor import Tensor

        nbytes = kind.itemsize * max(1, int(np.prod(shape)))
        made = Tensor(shape, kind, buffer=self.chip.memory.allocate(nbytes))
        self.chip.memory.fill(made, byte)
        return made

    def release(self) -> None:
        """Give the weights back."""
        for weight in self.weights:
            self.chip.weights.release(weight)


class TorchWeights:
    """Copies of a weight as torch's oneDNN has them packed for so many rows: float32, bfloat16, or
    int8 to meet rows of unsigned bytes, whose rounding is not part of the call."""

    def __init__(self, dtype: str, shape: Shape, threads: int) -> None:
        """Sets torch's threads."""
        import torch

        torch.set_num_threads(threads)
        self._torch, self._dtype, self._shape = torch, dtype, shape
        drawn = torch.randn(min(shape.n, DRAWN), shape.k) * shape.k**-0.5
        if dtype == "int8":
            drawn = (drawn * 64 / drawn.abs().max()).round()
        times = -(-shape.n // drawn.shape[0])
        rows = drawn.to(getattr(torch, dtype)).repeat(times, 1)[: shape.n]
        self._weight = rows.contiguous()

    def turns(self, rows: int) -> Turns:
        """The product with one copy after the other, each packed for so many rows."""
        copies = copies_of(self._weight.numel() * self._weight.element_size())
        make = self._bytes if self._dtype == "int8" else self._floats
        return Turns([make(rows) for _ in range(copies)])

    def _floats(self, rows: int) -> Callable[[], object]:
        torch, ops = self._torch, self._torch.ops.mkldnn
        x = torch.full((rows, self._shape.k), 0.19, dtype=self._weight.dtype)
        pack, multiply = attrgetter("_reorder_linear_weight", "_linear_pointwise")(ops)
        packed = pack(self._weight, rows)
        return lambda: multiply(x, packed, None, "none", [], "")

    def _bytes(self, rows: int) -> Callable[[], object]:
        torch, ops = self._torch, self._torch.ops.onednn
        x = torch.full((rows, self._shape.k), 131, dtype=torch.uint8)
        packed = ops.qlinear_prepack(self._weight, [rows, self._shape.k])
        scale, zero = torch.full((self._shape.n,), 0.01), torch.zeros(self._shape.n).long()
        rest = (scale, zero, None, 1.0, 0, torch.bfloat16, "none", [], "")
        return lambda: ops.qlinear_pointwise(x, 0.02, 128, packed, *rest)
