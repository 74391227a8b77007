"""O1, O2 and O10: each implementation against the oracle, over the named cases and the grid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anychip.conform.operator_calls import (
    arrays_of,
    declares,
    judged,
    nothing_own,
    opaque,
    run_case,
    spec_of,
)
from anychip.conform.operator_cases import (
    Types,
    asked,
    fitted,
    mixed_types,
    typed,
    types_of,
)
from anychip.conform.operator_edges import edges
from anychip.conform.proof import Proof, failed, inconclusive, missing, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.signature import Tier
from anychip.ops.cases import Case, cases
from anychip.ops.cases.grid import NO_OUTLIERS, grid, outliers
from anychip.ops.check import check_case, outcome
from anychip.ops.composed_error import error_limit
from anychip.ops.oracle import CacheArrays
from anychip.ops.placed import OpaqueCache
from anychip.ops.recipe import Recipe

MIXED = 2
"""Cases that weights or a cache in another dtype than the activations' are tried with."""


@dataclass
class Tally:
    """What one implementation showed. error, limit: of the case that came closest to its limit.

    dtypes: those in which a case ran. declined: those that a row covers while `when` declines every
    case, with a reason.
    """

    implementation: Implementation
    cases: int = 0
    error: float = 0.0
    limit: float = 0.0
    dtypes: set[str] = field(default_factory=set)
    declined: dict[str, str] = field(default_factory=dict)
    failure: str | None = None

    def note(self, error: float, limit: float) -> None:
        """One more case that ran."""
        self.cases += 1
        if self.limit == 0 or share(error, limit) > share(self.error, self.limit):
            self.error, self.limit = error, limit

    def __str__(self) -> str:
        tolerance = self.implementation.tolerance
        note = f", tolerance {tolerance:g} declared" if tolerance > 1 else ""
        text = f"{self.implementation.id}: {self.cases} cases, worst error {self.error:.2g}"
        return f"{text} of {self.limit:.2g}{note}"


def share(error: float, limit: float) -> float:
    """How much of its limit an error takes; 0 where results must be exact."""
    return error / limit if limit else 0.0


def tally(
    chip: Chip, implementation: Implementation, types: Collection[Types], cases: Iterable[Case]
) -> Tally:
    """Run every case, given in float32, in each dtype that the implementation covers; up to the
    first failure."""
    found, reasons = Tally(implementation), dict[str, str]()
    for case in cases:
        for one in types:
            fit = fitted(chip, typed(case, one))
            if fit is None:
                continue
            spec, name = spec_of(chip, fit), one.text(fit.op)
            if not declares(implementation, spec):
                continue
            reason = implementation.declines(spec)
            if reason is not None:
                reasons.setdefault(name, reason)
                continue
            found.dtypes.add(name)
            problem = _run(chip, fit, implementation, found)
            if problem is not None:
                found.failure = f"{implementation.id}, {fit.name} in {name}: {problem}"
                return found
    found.declined = {n: reason for n, reason in reasons.items() if n not in found.dtypes}
    return found


def _run(chip: Chip, case: Case, implementation: Implementation, found: Tally) -> str | None:
    ran = run_case(chip, case, implementation)
    if ran.damaged is not None:
        return f"bytes beside '{ran.damaged}' were written"
    verdict = judged(case, ran.outcome, implementation)
    found.note(verdict.relative_l2, verdict.limit)
    return None if verdict.ok else verdict.text


def right(op: str) -> Callable[[Subject], Proof]:
    """O1 of one operator: every implementation, and the recipe where there is one."""

    def run(subject: Subject) -> Proof:
        chip = subject.chip
        try:
            return _summary(op, list(_tallies(chip, op)))
        except OpaqueCache as error:
            return opaque(chip, op, error)

    return run


def _tallies(chip: Chip, op: str) -> Iterator[Tally]:
    plain, mixed = types_of(chip, op), mixed_types(chip, op)
    few = [c for c in cases(op) if c.control is not None]
    for implementation in chip.operators.of(op):
        found = tally(chip, implementation, plain, _everything(chip, implementation))
        if found.failure is None and mixed:
            other = tally(chip, implementation, mixed, few[-MIXED:])
            found.cases, found.failure = found.cases + other.cases, other.failure
        yield found
    if CATALOGUE[op].tier is not Tier.PRIMITIVE:
        with Recipe(chip, op) as recipe:
            yield tally(chip, recipe, plain, few[-1:])


def _everything(chip: Chip, implementation: Implementation) -> Iterator[Case]:
    """The named cases, the grid, and both sides of every declared bound."""
    yield from cases(implementation.op)
    yield from grid(implementation.op)
    yield from edges(chip, implementation)


def _summary(op: str, tallies: list[Tally]) -> Proof:
    failures = [t.failure for t in tallies if t.failure is not None]
    if failures:
        return failed("; ".join(failures), **_figures(tallies))
    tried = [t for t in tallies if t.cases]
    if not tried:
        return missing(f"nothing computes '{op}' here: see R1")
    for one in tallies:
        for dtype, reason in one.declined.items():
            text = f"{one.implementation.id} declares {dtype} and declines every case: {reason}"
            if one.implementation.id != "composed":
                return inconclusive(text)
    return passed("; ".join(map(str, tried)), **_figures(tried))


def _figures(tallies: list[Tally]) -> dict[str, float]:
    worst = max(tallies, key=lambda t: share(t.error, t.limit))
    return {
        "cases": sum(t.cases for t in tallies),
        "worst_error": worst.error,
        "worst_limit": worst.limit,
        "tolerance": max(t.implementation.tolerance for t in tallies),
    }


def noticed(op: str) -> Callable[[Subject], Proof]:
    """O2 of one operator: what each case's control would have shown."""

    def run(subject: Subject) -> Proof:
        count = 0
        for types in types_of(subject.chip, op):
            for case in asked(subject.chip, op, types):
                expected = outcome(op, case.inputs, case.attrs)
                if all(array.size == 0 for array in arrays_of(expected).values()):
                    continue
                count += 1
                problem = _unnoticed(case, expected)
                if problem is not None:
                    return inconclusive(f"{case.name} in {types.text(op)}: {problem}")
        if count == 0:
            return inconclusive(f"no case of '{op}' that the chip may be asked has a result")
        return passed(f"{count} wrong results are noticed", controls=count)

    return run


def _unnoticed(case: Case, expected: Mapping[str, Any]) -> str | None:
    """Why a wrong result of the case would pass: its control's, or one that is off by one."""
    bound = error_limit(case)
    if case.control is not None:
        verdict = check_case(case, expected, bound=bound)
        return None if verdict.conclusive else f"{case.control.text}: {verdict.text}"
    off = {name: _off(value) for name, value in expected.items()}
    verdict = check_case(case, off, bound=bound)
    return f"a result that is off by one passes: {verdict.text}" if verdict.ok else None


def _off(value: Any) -> Any:
    if isinstance(value, CacheArrays):
        return value.mapped(_off)
    return ~value if value.dtype.kind == "b" else value + value.dtype.type(1)


def with_outliers(op: str) -> Callable[[Subject], Proof]:
    """O10 of one operator."""

    def run(subject: Subject) -> Proof:
        chip, case = subject.chip, outliers(op)
        if case is None:
            return unsupported(NO_OUTLIERS[op])
        types = types_of(chip, op)
        try:
            tallies = [tally(chip, i, types, [case]) for i in chip.operators.of(op)]
        except OpaqueCache as error:
            return opaque(chip, op, error)
        return _summary(op, tallies) if tallies else nothing_own(op)

    return run
