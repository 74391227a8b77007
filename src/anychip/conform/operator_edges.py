"""Where an implementation stops to cover calls: its declared bounds, found by asking `declines`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

from anychip.conform.operator_calls import Sketch, Sketches, sketches, spec_from
from anychip.conform.operator_cases import Types, elements, typed, types_of
from anychip.contract.cache import SCALE_BYTES
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec, Implementation
from anychip.contract.registration import Chip
from anychip.contract.signature import Arg, ArgKind
from anychip.ops.cases import Case
from anychip.ops.cases.grid import DIMENSIONS, Dimension, blank, sized

DOUBLINGS = 17
"""Bounds are looked for up to 2**17."""
ASKED_ELEMENTS = 1 << 24
RUN_ELEMENTS = 1 << 23
"""Elements of a case that is asked about without memory, and of one that is run."""


Covered = tuple[bool, ...]
"""Whether a size is covered, for each of the dtypes."""


def edges(chip: Chip, implementation: Implementation) -> Iterator[Case]:
    """Cases on both sides of each bound, float32; who runs them leaves out what is declined.

    A bound at a size whose case has more than RUN_ELEMENTS is not run.
    """
    op = implementation.op
    for dimension in DIMENSIONS[op]:
        for size in bounds(chip, implementation, dimension):
            if elements(blank(op, **{dimension.name: size})) <= RUN_ELEMENTS:
                yield sized(op, **{dimension.name: size})


def bounds(chip: Chip, implementation: Implementation, dimension: Dimension) -> list[int]:
    """Sizes of one dimension, others at their defaults, around which in any dtype calls stop to
    be covered: the last one before, the first one behind, and a further one each way."""
    if max(dimension.sizes) <= 1:  # an option, on or off
        return []
    types = types_of(chip, implementation.op)

    @cache
    def covers(size: int) -> Covered:
        specs = specs_at(chip, implementation.op, types, {dimension.name: size})
        return tuple(s is not None and implementation.declines(s) is None for s in specs)

    found: set[int] = set()
    for low, high in pairwise(_sizes(implementation.op, dimension.name)):
        if covers(low) != covers(high):
            last = _flip(covers, low, high)
            found |= {size for size in range(last - 1, last + 3) if any(covers(size))}
    return sorted(found)


def _sizes(op: str, name: str) -> list[int]:
    """Powers of two that make a call, up to where one is too large to ask about."""
    found = []
    for size in (1 << n for n in range(DOUBLINGS + 1)):
        try:
            case = blank(op, **{name: size})
        except ValueError:  # sizes that do not go together
            continue
        found.append(size)
        if 4 * elements(case) > ASKED_ELEMENTS:
            break
    return found


def _flip(covers: Callable[[int], Covered], low: int, high: int) -> int:
    """The last size from `low` on that is covered as `low` is."""
    while high - low > 1:
        middle = (low + high) // 2
        if covers(middle) == covers(low):
            low = middle
        else:
            high = middle
    return low


def specs_at(
    chip: Chip, op: str, types: tuple[Types, ...], sizes: dict[str, int]
) -> list[CallSpec | None]:
    """The call of these sizes in each dtype, before it has memory; None where sizes do not go
    together."""
    try:
        case = blank(op, **sizes)
    except ValueError:
        return [None] * len(types)
    known = sketches(case)
    return [_spec_in(chip, case, known, one) for one in types]


def _spec_in(chip: Chip, case: Case, known: Sketches, types: Types) -> CallSpec | None:
    attrs = {**case.attrs, **_dtype_attr(case.op, types)}
    try:
        return spec_from(chip, case.op, _typed(case.op, known, types), attrs)
    except ValueError:
        return None


def _dtype_attr(op: str, types: Types) -> dict[str, str]:
    attrs = typed(blank(op), types).attrs
    return {"dtype": attrs["dtype"]} if "dtype" in attrs else {}


def _typed(op: str, known: Sketches, types: Types) -> dict[str, Sketch | None]:
    """Floats of a variable dtype in these types, as `Case.with_dtype` has them."""
    return {a.name: _retyped(a, known[a.name], types) for a in CATALOGUE[op].inputs}


def _retyped(arg: Arg, sketch: Sketch | None, types: Types) -> Sketch | None:
    if sketch is None or not arg.dtype.isupper() or not sketch.dtype.is_float:
        return sketch
    dtype, shape = _of_kind(arg.kind, types), sketch.shape
    if arg.kind is ArgKind.CACHE and dtype.is_scaled:
        shape = (*shape[:-1], shape[-1] + SCALE_BYTES)
    return replace(sketch, dtype=dtype, shape=shape)


def _of_kind(kind: ArgKind, types: Types) -> DType:
    by_kind = {ArgKind.WEIGHT: types.weight, ArgKind.CACHE: types.cache}
    return by_kind.get(kind, types.activation)
