"""O9: offsets beyond 2**31 elements, in rows that lie far apart, in caches and in tables.

Only what a call uses is touched: the rest of a huge buffer is never written, on the host or here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from anychip.conform.operator_calls import bound_of
from anychip.conform.operator_cases import Types, typed, types_of
from anychip.conform.operator_given import NotCovered, computed_by, run_given
from anychip.conform.proof import Proof, failed, inconclusive, passed
from anychip.conform.subject import Subject
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor, TensorSpec, contiguous_strides
from anychip.hostops import dtype_of
from anychip.ops import permuted
from anychip.ops.cases import Case
from anychip.ops.cases.grid import sized
from anychip.ops.check import check_case
from anychip.ops.oracle.arrays import Array
from anychip.ops.placed import OpaqueCache

FAR = (1 << 31) + 64
"""Elements between two rows."""
MARGIN = 64 << 20
"""Bytes that a call may need beside what lies far apart."""
ROWS_APART = {
    "copy": ("x", {"T": 2}),
    "add": ("a", {"T": 2}),
    "rms_norm": ("x", {"T": 2}),
    "linear": ("x", {"T": 2}),
    "rotary_embedding": ("q", {"T": 2}),
    "kv_write": ("k", {"T": 2}),
    "paged_attention": ("q", {"T": 2, "B": 1}),
}
"""Operator -> the input whose rows lie far apart, and sizes that give it two rows."""


class TooLarge(RuntimeError):
    """The device has no room. needed, largest: bytes."""

    def __init__(self, needed: int, largest: int) -> None:
        super().__init__(
            f"needs {needed / 1e9:.1f} GB of device memory in one piece, "
            f"the largest is {largest / 1e9:.1f} GB"
        )


@contextmanager
def huge(chip: Chip, spec: TensorSpec) -> Iterator[Tensor]:
    """A tensor with memory of its own, contents undefined. Raises TooLarge."""
    last = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
    nbytes, largest = (last + 1) * spec.dtype.itemsize, chip.memory.info().largest
    if nbytes + MARGIN > largest:
        raise TooLarge(nbytes + MARGIN, largest)
    buffer = chip.memory.allocate(nbytes)
    try:
        yield Tensor(spec.shape, spec.dtype, spec.strides, buffer=buffer)
    finally:
        chip.memory.free(buffer)


def put_rows(chip: Chip, target: Tensor, rows: Mapping[int, Array]) -> None:
    """Fill some rows (entries of the first dimension) alone."""
    for row, values in rows.items():
        inner = target.shape[1:], target.strides[1:]
        permuted.write(chip.memory, target.view(*inner, offset=row * target.strides[0]), values)


def narrowest(chip: Chip, op: str) -> Types:
    """The dtypes in which 2**31 elements take the least memory."""
    return min(types_of(chip, op), key=lambda types: types.activation.itemsize)


Judge = Callable[[Chip, Implementation], "str | None"]
"""What is wrong, None where nothing is. Raises TooLarge, NotCovered."""


def each_far(subject: Subject, op: str, judge: Judge) -> Proof:
    """Ask about every implementation, or the recipe where the chip has none of its own."""
    chip, asked, gap = subject.chip, list[str](), ""
    with ExitStack() as stack:
        for implementation in computed_by(chip, op, stack):
            try:
                problem = judge(chip, implementation)
            except TooLarge as error:
                return inconclusive(str(error))
            except (NotCovered, OpaqueCache) as error:
                gap = str(error)
                continue
            if problem is not None:
                return failed(f"{implementation.id}: {problem}")
            asked.append(implementation.id)
    if not asked:
        return inconclusive(gap)
    return passed(f"{', '.join(asked)}: offsets of {FAR:,} elements")


def rows_apart(op: str) -> Judge:
    """Two rows, the second beyond 2**31 elements."""
    name, sizes = ROWS_APART[op]

    def judge(chip: Chip, implementation: Implementation) -> str | None:
        types = narrowest(chip, op)
        case = typed(_two_rows(sized(op, **sizes)), types)
        array = np.ascontiguousarray(case.inputs[name])
        strides = (FAR, *contiguous_strides(array.shape[1:]))
        with huge(chip, TensorSpec(array.shape, dtype_of(array), strides)) as tensor:
            put_rows(chip, tensor, dict(enumerate(array)))
            inputs = {**case.inputs, name: tensor}
            found = run_given(chip, op, inputs, case.attrs, implementation)
        verdict = check_case(case, found, bound=bound_of(case, implementation))
        return None if verdict.ok else f"rows of '{name}' {FAR:,} elements apart: {verdict.text}"

    return judge


def _two_rows(case: Case) -> Case:
    """Both rows of a cache write are kept."""
    if case.op != "kv_write":
        return case
    slots = np.array([3, 0], np.int32)
    return replace(case, inputs={**case.inputs, "slots": slots})
