"""One call on a chip for the operator checks: its spec before memory, its run, its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from anychip.conform.proof import Proof, inconclusive, missing, unsupported
from anychip.contract.cache import spec_over
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec, Implementation, Launch
from anychip.contract.registration import Chip
from anychip.contract.signature import Arg, ArgKind, Spec, Tier, infer_outputs
from anychip.contract.tensor import Shape, TensorSpec
from anychip.contract.weights import WeightUse
from anychip.hostops import dtype_of
from anychip.ops.cases import Case
from anychip.ops.check import Verdict, check_case, relative_l2, result_dtype
from anychip.ops.composed_error import MULTIPLE, error_limit
from anychip.ops.limits import EXACT, ROUNDOFF
from anychip.ops.oracle import CacheArrays, filled
from anychip.ops.oracle.arrays import Array
from anychip.ops.placed import POISON, USES, HostWeights, OpaqueCache, place

JUDGED_BY_O4 = (
    *("kv_write", "kv_copy_pages", "paged_attention"),
    *("latent_write", "latent_attention"),
)
TIMEOUT = 120.0
"""Seconds that one call of the kit may take."""


class CaseError(RuntimeError):
    """A chip raised something in the middle of a case; the text names both."""


@dataclass(frozen=True)
class Sketch:
    """What a spec needs to know of an argument. shape, strides: of the keys for a cache.

    latent: of a latent cache, see CacheGroup.
    """

    shape: Shape
    strides: Shape
    dtype: DType
    latent: int = 0


Sketches = Mapping[str, Sketch | None]


def sketches(case: Case) -> dict[str, Sketch | None]:
    """The case's arguments without their contents."""
    names = (a.name for a in CATALOGUE[case.op].inputs)
    return {name: _sketch(case.inputs.get(name)) for name in names}


def _sketch(value: Any) -> Sketch | None:
    if value is None:
        return None
    array, latent = value, 0
    if isinstance(value, CacheArrays):
        array, latent = value.k, value.latent
    steps = tuple(s // array.itemsize for s in array.strides)
    return Sketch(array.shape, steps, dtype_of(array), latent)


def spec_of(chip: Chip, case: Case) -> CallSpec:
    """The call as `place` would make it. Raises ChipError for a weight that cannot be packed."""
    return spec_from(chip, case.op, sketches(case), case.attrs)


def spec_from(chip: Chip, op: str, known: Sketches, attrs: Mapping[str, Any]) -> CallSpec:
    """A call of known sizes; nothing is allocated. Raises ChipError, SignatureError."""
    signature = CATALOGUE[op]
    specs = {a.name: _spec(chip, op, a, known[a.name]) for a in signature.inputs}
    full = filled(op, attrs)
    inferred = infer_outputs(signature, specs, full)
    outputs = {a.name: s for a, s in zip(signature.outputs, inferred, strict=True)}
    return CallSpec(op, specs, outputs, full)


def _spec(chip: Chip, op: str, arg: Arg, sketch: Sketch | None) -> Spec | None:
    if sketch is None:
        return None
    if arg.kind is ArgKind.WEIGHT:
        use = frozenset({USES.get(op, WeightUse.LINEAR)})
        return chip.weights.plan((sketch.dtype.value,), (sketch.shape,), use)
    if arg.kind is ArgKind.CACHE:
        layout = chip.capabilities().cache_layout
        return spec_over(sketch.shape, sketch.dtype, layout, sketch.latent)
    return TensorSpec(sketch.shape, sketch.dtype, sketch.strides)


def declares(implementation: Implementation, spec: CallSpec) -> bool:
    """Whether one of its dtype rows covers the call, whatever `when` says."""
    return replace(implementation, when=_whatever).declines(spec) is None


def _whatever(call: CallSpec) -> str | None:
    return None


@dataclass(frozen=True, eq=False)
class Ran:
    """What a call gave. outcome: as `Placed.outcome`. damaged: the argument beside which bytes
    were written, None where there is none."""

    outcome: Mapping[str, Any]
    damaged: str | None


def run_case(
    chip: Chip,
    case: Case,
    implementation: Implementation,
    *,
    poison: int = POISON,
    parts: HostWeights | None = None,
) -> Ran:
    """One run in fresh memory. Raises OpaqueCache, and CaseError for what the chip raises."""
    with naming(case, implementation), place(chip, case.op, case.inputs, case.attrs, parts) as at:
        launch = at.prepare(implementation)
        at.poison(poison)
        finish(chip, launch)
        return Ran(at.outcome(), at.damaged())


@contextmanager
def naming(case: Case, implementation: Implementation) -> Iterator[None]:
    """What the chip raises inside is told with case and implementation."""
    try:
        yield
    except OpaqueCache:
        raise
    except Exception as error:
        text = f"{implementation.id}, {case.name}: {type(error).__name__}: {error}"
        raise CaseError(text) from error


def finish(chip: Chip, launch: Launch) -> None:
    """Run one launch to its end. Raises ChipError."""
    launch()
    chip.queue.synchronize(TIMEOUT)


def bound_of(case: Case, implementation: Implementation) -> float:
    """The largest relative L2 that the implementation may show, its tolerance included."""
    return error_limit(case) * implementation.tolerance


def judged(case: Case, outcome: Mapping[str, Any], implementation: Implementation) -> Verdict:
    """What a run gave, against the oracle.

    One rounding is always allowed (see `error_limit`): what keeps to that needs no recipe run to
    find its limit.
    """
    rounding = 0.0 if case.op in EXACT else MULTIPLE * ROUNDOFF[result_dtype(case)]
    verdict = check_case(case, outcome, bound=rounding * implementation.tolerance)
    if verdict.ok or case.op in EXACT:
        return verdict
    return check_case(case, outcome, bound=bound_of(case, implementation))


def wrong(case: Case, ran: Ran, implementation: Implementation) -> str | None:
    """What is wrong with a run, None where nothing is."""
    if ran.damaged is not None:
        return f"bytes beside '{ran.damaged}' were written"
    verdict = judged(case, ran.outcome, implementation)
    return None if verdict.ok else verdict.text


def arrays_of(outcome: Mapping[str, Any]) -> dict[str, Array]:
    """An outcome's arrays by name, keys and values of a cache apart."""
    found: dict[str, Array] = {}
    for name, value in outcome.items():
        if isinstance(value, CacheArrays):
            found |= {f"{name}.k": value.k, f"{name}.v": value.v}
        else:
            found[name] = value
    return found


def same_bytes(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two outcomes are equal to the bit."""
    left, right = arrays_of(a), arrays_of(b)
    return all(left[n].tobytes() == right[n].tobytes() for n in left)


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """The largest relative L2 between two outcomes; infinite where shapes or dtypes differ."""
    left, right = arrays_of(a), arrays_of(b)
    if any(left[n].dtype != right[n].dtype for n in left):
        return float("inf")
    return max(relative_l2(left[n], right[n]) for n in left)


def nothing_own(op: str) -> Proof:
    """The proof of a check that looks at implementations, where the chip brings none."""
    if CATALOGUE[op].tier is Tier.PRIMITIVE:
        return missing(f"the chip has no implementation of '{op}': see R1")
    return unsupported(f"the chip has no implementation of '{op}' of its own: it is composed")


def opaque(chip: Chip, op: str, error: OpaqueCache) -> Proof:
    """The proof of a check that must read or write a cache whose layout is the chip's own."""
    if not chip.operators.of(op):
        return nothing_own(op)
    if op in JUDGED_BY_O4:
        return unsupported(f"{error}: O4 judges it through attention")
    return inconclusive(f"{error}: the level of the models judges '{op}'")
