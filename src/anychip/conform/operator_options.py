"""O3: every attribute and every optional input changes what the chip gives, as it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anychip.conform.operator_calls import bound_of, distance, opaque, run_case, spec_of
from anychip.conform.operator_cases import asked, fitted, typed, types_of
from anychip.conform.proof import Proof, failed, inconclusive, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.signature import Tier
from anychip.ops.cases import Case
from anychip.ops.cases.grid import grid
from anychip.ops.check import CONTROL_FACTOR, check_case, result_dtype
from anychip.ops.limits import limit as limit_of
from anychip.ops.oracle import filled
from anychip.ops.placed import OpaqueCache
from anychip.ops.recipe import Recipe


def options_of(op: str) -> tuple[str, ...]:
    """Attributes and optional inputs."""
    signature = CATALOGUE[op]
    return (*(a.name for a in signature.attrs), *(a.name for a in signature.inputs if a.optional))


def options_matter(op: str) -> Callable[[Subject], Proof]:
    """O3 of one operator."""

    def run(subject: Subject) -> Proof:
        chip, names = subject.chip, options_of(op)
        try:
            return _judge(chip, op, names)
        except OpaqueCache as error:
            return opaque(chip, op, error)

    return run


def _judge(chip: Chip, op: str, names: tuple[str, ...]) -> Proof:
    shown, ids = set[str](), list[str]()
    for implementation in chip.operators.of(op):
        ids.append(implementation.id)
        problem = _first_problem(chip, implementation, names, shown)
        if problem is not None:
            return failed(problem)
    if set(names) - shown and CATALOGUE[op].tier is not Tier.PRIMITIVE:
        with Recipe(chip, op) as recipe:
            ids.append(recipe.id)
            problem = _first_problem(chip, recipe, names, shown)
        if problem is not None:
            return failed(problem)
    unseen = [n for n in names if n not in shown]
    if unseen and all(map(_one_dtype_alone(chip, op), unseen)):
        return unsupported(f"one activation dtype is declared, and {unseen[0]} has no other value")
    if unseen:
        return inconclusive(
            f"no call that the chip covers shows '{unseen[0]}' of '{op}'; an implementation that"
            " covers two values of it would"
        )
    return passed(f"{', '.join(ids)}: {', '.join(names)}", options=len(names))


def _one_dtype_alone(chip: Chip, op: str) -> Callable[[str], bool]:
    """Whether an option of the operator is a dtype that this chip has one value of."""
    dtypes = {a.name for a in CATALOGUE[op].attrs if a.type == "dtype"}
    alone = len(chip.capabilities().activation_dtypes) == 1
    return lambda name: alone and name in dtypes


def _first_problem(
    chip: Chip, implementation: Implementation, names: tuple[str, ...], shown: set[str]
) -> str | None:
    """What is wrong with the first option that does not do as it should; notes the others.

    Some attributes cannot change alone (what decides a shape): two values of such a one are each
    compared with the oracle.
    """
    for name in names:
        pair = _pair(chip, implementation, _twins(chip, implementation.op, name))
        other = pair or _pair(chip, implementation, _values(chip, implementation.op, name))
        if other is None:
            continue
        shown.add(name)
        problem = _problem(chip, implementation, other, alone=pair is not None)
        if problem is not None:
            return f"{implementation.id}, '{name}', {other[0].name}: {problem}"
    return None


def _problem(
    chip: Chip, implementation: Implementation, pair: tuple[Case, Case], *, alone: bool
) -> str | None:
    runs = [run_case(chip, case, implementation) for case in pair]
    for case, ran in zip(pair, runs, strict=True):
        verdict = check_case(case, ran.outcome, bound=_generous(case, implementation))
        if not verdict.ok:
            return verdict.text
    if not alone:
        return None
    apart = distance(runs[0].outcome, runs[1].outcome)
    limit = CONTROL_FACTOR * max(bound_of(case, implementation) for case in pair)
    if apart <= limit:
        return f"two calls that differ in it alone lie {apart:.3g} apart, limit {limit:.3g}"
    return None


def _generous(case: Case, implementation: Implementation) -> float:
    """A bound for calls that O1 does not ask, whose rounding may be amplified: the question here
    is not how exact they are."""
    formula = limit_of(case.op, case.inputs, result_dtype(case)) * implementation.tolerance
    return max(bound_of(case, implementation), formula)


def _pair(
    chip: Chip, implementation: Implementation, pairs: Iterator[tuple[Case, Case]]
) -> tuple[Case, Case] | None:
    """The first pair of which both calls are covered."""
    for pair in pairs:
        if all(implementation.declines(spec_of(chip, case)) is None for case in pair):
            return pair
    return None


def _twins(chip: Chip, op: str, name: str) -> Iterator[tuple[Case, Case]]:
    """Cases whose control changes that option alone, and the changed ones."""
    for case in _every(chip, op):
        control = case.control
        if control is not None and {*control.inputs, *control.attrs} == {name}:
            inputs = {**case.inputs, **control.inputs}
            attrs = {**case.attrs, **control.attrs}
            yield case, replace(case, inputs=inputs, attrs=attrs, control=None)


def _values(chip: Chip, op: str, name: str) -> Iterator[tuple[Case, Case]]:
    """A case, and each later one with another value of the attribute."""
    first: Case | None = None
    for case in _every(chip, op):
        given = filled(op, case.attrs)
        if name not in given:
            return
        if first is None and any(s.size for s in spec_of(chip, case).outputs.values()):
            first = case
        elif first is not None and given[name] != filled(op, first.attrs)[name]:
            yield first, case


def _every(chip: Chip, op: str) -> Iterator[Case]:
    """The named cases in every dtype, then the grid."""
    for types in types_of(chip, op):
        yield from asked(chip, op, types)
    for types in types_of(chip, op):
        for case in grid(op):
            fit = fitted(chip, typed(case, types))
            if fit is not None:
                yield fit
