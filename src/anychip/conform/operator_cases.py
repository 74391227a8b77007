"""Which cases of an operator a chip is asked, in which dtypes: only what it declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anychip.conform.operator_calls import sketches, spec_of
from anychip.conform.operator_pages import repaged
from anychip.contract.cache import SCALE_BYTES
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.catalogue.attention import LATENT
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError
from anychip.contract.formats import PLAIN_FORMATS
from anychip.contract.registration import Capabilities, Chip
from anychip.contract.signature import ArgKind, bind_inputs
from anychip.contract.tensor import Shape
from anychip.contract.weights import WeightUse
from anychip.ops.cases import Case, cases
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.scaled import is_scaled
from anychip.ops.placed import USES

F32 = DType.FLOAT32
MIDDLE = 100_000
"""Elements that a middle-sized case may have in all its arguments."""


@dataclass(frozen=True)
class Types:
    """The dtypes of a call: of activations, plain weights and the cache."""

    activation: DType
    weight: DType
    cache: DType

    def text(self, op: str) -> str:
        """For a person: the activation's, and the others where the operator has them."""
        kinds = {a.kind for a in CATALOGUE[op].inputs}
        words = [self.activation.value]
        if ArgKind.WEIGHT in kinds and self.weight is not self.activation:
            words.append(f"weights {self.weight.value}")
        if ArgKind.CACHE in kinds and self.cache is not self.activation:
            words.append(f"cache {self.cache.value}")
        return ", ".join(words)


def varies(op: str) -> bool:
    """Whether any float of the operator has a dtype of its caller's choice."""
    signature = CATALOGUE[op]
    return any(a.dtype.isupper() for a in (*signature.inputs, *signature.outputs))


def activations(chip: Chip, op: str) -> tuple[DType, ...]:
    """The dtypes that the operator must work in; float32 where its signature fixes it."""
    return chip.capabilities().activation_dtypes if varies(op) else (F32,)


def types_of(chip: Chip, op: str) -> tuple[Types, ...]:
    """One combination an activation dtype; weights and cache alike where the chip has that."""
    facts, weights = chip.capabilities(), plain_weights(chip, op)
    return tuple(
        Types(dtype, _alike(dtype, weights), _alike(dtype, facts.cache_dtypes))
        for dtype in activations(chip, op)
    )


def mixed_types(chip: Chip, op: str) -> tuple[Types, ...]:
    """The other combinations: weights, or the cache, in another dtype than the activations."""
    kinds = {a.kind for a in CATALOGUE[op].inputs}
    found = []
    for types in types_of(chip, op):
        if ArgKind.WEIGHT in kinds:
            weights = plain_weights(chip, op)
            found += [replace(types, weight=w) for w in weights if w is not types.weight]
        if ArgKind.CACHE in kinds:
            caches = chip.capabilities().cache_dtypes
            caches = tuple(c for c in caches if not (c.is_scaled and op in LATENT))
            found += [replace(types, cache=c) for c in caches if c is not types.cache]
    return tuple(found)


def plain_weights(chip: Chip, op: str) -> tuple[DType, ...]:
    """Plain formats that the chip takes and keeps without loss: as they are, or as float32."""
    use = frozenset({USES.get(op, WeightUse.LINEAR)})
    return tuple(
        DType(name)
        for name in chip.capabilities().weight_formats
        if name in PLAIN_FORMATS and _kept(chip, name, use) in (name, F32.value)
    )


def _kept(chip: Chip, name: str, use: frozenset[WeightUse]) -> str | None:
    try:
        return chip.weights.plan((name,), ((32, 32),), use).format
    except ChipError:  # what it declares and then refuses is told by O12
        return None


def _alike(dtype: DType, offers: tuple[DType, ...]) -> DType:
    return dtype if dtype in offers or not offers else offers[0]


def typed(case: Case, types: Types) -> Case:
    """The case in these dtypes."""
    base = case.with_dtype(types.activation)
    for kind, dtype in ((ArgKind.WEIGHT, types.weight), (ArgKind.CACHE, types.cache)):
        names = {a.name for a in CATALOGUE[case.op].inputs if a.kind is kind}
        if dtype is not types.activation and names:
            base = _with_inputs_of(base, case.with_dtype(dtype), names)
    return base


def _with_inputs_of(base: Case, other: Case, names: set[str]) -> Case:
    inputs = {n: other.inputs[n] if n in names else v for n, v in base.inputs.items()}
    control = base.control
    if control is not None and other.control is not None:
        given = other.control.inputs
        changes = {n: given[n] if n in names else v for n, v in control.inputs.items()}
        control = replace(control, inputs=changes)
    return replace(base, inputs=inputs, control=control)


def fitted(chip: Chip, case: Case) -> Case | None:
    """The case in a page size that the chip has; None where it exceeds what a step may have, or
    where no cache holds its vectors."""
    facts = chip.capabilities()
    sizes = facts.page_sizes
    if "cache" in case.inputs and not _held(case.inputs["cache"]):
        return None
    if "cache" in case.inputs and case.inputs["cache"].page_size not in sizes:
        wanted = case.inputs["cache"].page_size
        case = repaged(case, min(sizes, key=lambda size: abs(size - wanted)))
    return case if _within(chip, facts, case) else None


def _held(cache: CacheArrays) -> bool:
    """Whether there is such a cache: scales lie behind vectors of a multiple of four elements."""
    whole = not cache.latent and cache.k.shape[-1] % SCALE_BYTES == 0
    return whole or not is_scaled(cache.k)


def _within(chip: Chip, facts: Capabilities, case: Case) -> bool:
    if facts.max_tokens is None and facts.max_rows is None:
        return True
    dims, _ = bind_inputs(CATALOGUE[case.op], spec_of(chip, case).inputs)
    rows = max(dims.get("B", 0), dims.get("R", 0))
    too_many = facts.max_tokens is not None and dims.get("T", 0) > facts.max_tokens
    return not too_many and (facts.max_rows is None or rows <= facts.max_rows)


def asked(chip: Chip, op: str, types: Types) -> Iterator[Case]:
    """Every named case of the operator that the chip may be asked, in these dtypes."""
    for case in cases(op):
        fit = fitted(chip, typed(case, types))
        if fit is not None:
            yield fit


def middle(chip: Chip, op: str, types: Types) -> tuple[Case, ...]:
    """The named cases with a control, the middle-sized first; all of them where none has one."""
    every = list(asked(chip, op, types))
    found = [c for c in every if c.control is not None] or every
    return tuple(sorted(found, key=lambda case: _rank(elements(case))))


def elements(case: Case) -> int:
    """Elements of all arguments."""
    return sum(_size(s.shape) for s in sketches(case).values() if s is not None)


def _size(shape: Shape) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _rank(size: int) -> int:
    """The largest below MIDDLE first, then the smallest above it."""
    return -size if size <= MIDDLE else size
