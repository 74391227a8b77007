"""The core of the check interpreter: one call's outputs against the oracle.

The oracle starts from the call's own inputs, so that an error is found where it is made. Each row
is compared by its relative L2 error: one row gone wrong among thousands does not average away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.ops.cases.case import Case, Control
from anychip.ops.limits import LOGARITHMS, limit
from anychip.ops.oracle import CacheArrays, evaluate, filled
from anychip.ops.oracle.arrays import Array, Inputs, is_float, wide
from anychip.ops.oracle.controls import controls
from anychip.ops.oracle.experts import settled_route
from anychip.ops.oracle.sampling import Draw, choose, row_of
from anychip.ops.oracle.scaled import read

CONTROL_FACTOR = 4.0
"""A control must lie this many limits away, otherwise the check could not have failed."""

GRAINS = {DType.FLOAT16: 2.0**-24}
"""Steps between numbers that are too small to be normal, where activations may reach them: two
roundings of half a step. The other types' are beyond all that a network computes."""

Outcome = Mapping[str, Any]
"""Output or written input -> array, or CacheArrays for a cache."""


@dataclass(frozen=True)
class Verdict:
    """ok: relative_l2 <= limit. control_l2: what the control would have shown; None where no
    change of the call changes its result. text: one line for a person."""

    ok: bool
    relative_l2: float
    limit: float
    control_l2: float | None
    text: str

    @property
    def conclusive(self) -> bool:
        """Whether a wrong result would have been noticed."""
        return self.control_l2 is not None and self.control_l2 > CONTROL_FACTOR * self.limit


@dataclass(frozen=True, eq=False)
class _Question:
    """A call, what the oracle says, and the limit for its float results."""

    op: str
    inputs: Inputs
    attrs: Mapping[str, Any]
    expected: Outcome
    bound: float

    def bound_of(self, name: str) -> float:
        """Integers, bools and copies are exact."""
        value = self.expected[name]
        if isinstance(value, CacheArrays):
            return self.bound
        return self.bound if is_float(value) else 0.0


def compare(  # noqa: PLR0913 - a call, its outcome, and how to judge it
    op: str,
    inputs: Inputs,
    attrs: Mapping[str, Any],
    outputs: Outcome,
    dtype: DType,
    *,
    control: Control | None = None,
    bound: float | None = None,
) -> Verdict:
    """Judge a call. Nothing is computed on a chip.

    inputs: host arrays copied out before the call ran, weights dense. outputs: by name, every
    output and every input that the operator writes, copied out afterwards. dtype: what float
    results are held in; it sets the limit. control: the call's negative control, otherwise one is
    looked for. bound: largest error of float results, from `limits` where it is None. `sample`
    and `route_experts` may choose what rounding explains, all other integers are exact. Raises
    KeyError where an output is missing.
    """
    expected = _expected(op, inputs, attrs, outputs)
    allowed = limit(op, inputs, dtype) if bound is None else bound
    asked = _Question(op, inputs, attrs, expected, allowed)
    found = dict(outputs)
    if op == "sample":
        found["tokens"] = _settled(inputs, expected["tokens"], outputs["tokens"])
    grain = max(GRAINS.get(dtype, 0.0), allowed if op in LOGARITHMS else 0.0)
    errors = {
        name: distance(value, found[name], grain if asked.bound_of(name) else 0.0)
        for name, value in expected.items()
    }
    worst = max(errors, key=lambda name: errors[name] - asked.bound_of(name))
    shown = _control_error(asked, control)
    return _verdict(asked, worst, errors[worst], shown)


def check_case(case: Case, outputs: Outcome, bound: float | None = None) -> Verdict:
    """`compare` for a test case."""
    given = (case.op, case.inputs, case.attrs, outputs, result_dtype(case))
    return compare(*given, control=case.control, bound=bound)


def result_dtype(case: Case) -> DType:
    """The dtype that a case's float results are held in."""
    if case.attrs.get("dtype") == DType.FLOAT32.value:
        return DType.FLOAT32
    fixed = {a.dtype for a in CATALOGUE[case.op].outputs}
    return DType.FLOAT32 if fixed == {DType.FLOAT32.value} else case.dtype


def outcome(op: str, inputs: Inputs, attrs: Mapping[str, Any]) -> Outcome:
    """What the oracle gives, by name: every output and every input that the operator writes."""
    result = evaluate(op, inputs, attrs)
    names = [a.name for a in CATALOGUE[op].outputs]
    return {**dict(zip(names, result.outputs, strict=True)), **result.written}


def _expected(op: str, inputs: Inputs, attrs: Mapping[str, Any], found: Outcome) -> Outcome:
    """`outcome`; where rounding leads to other experts, the weights of those."""
    if op != "route_experts":
        return outcome(op, inputs, attrs)
    slack = limit(op, inputs, DType.FLOAT32)
    settled = settled_route(inputs, filled(op, attrs), found["ids"], slack)
    return dict(zip(("weights", "ids"), settled.outputs, strict=True))


def _verdict(asked: _Question, worst: str, error: float, shown: float | None) -> Verdict:
    bound = asked.bound_of(worst)
    ok = error <= bound
    agreement = "agrees with" if ok else "diverges from"
    text = f"{asked.op} {agreement} the oracle: relative L2 of '{worst}' {error:.3g}"
    text += f", limit {bound:.3g}"
    verdict = Verdict(ok, error, bound, shown, text)
    note = "no control" if shown is None else f"control {shown:.3g}"
    note += "" if verdict.conclusive else ", inconclusive"
    return Verdict(ok, error, bound, shown, f"{text}, {note}")


def distance(
    expected: Array | CacheArrays, found: Array | CacheArrays, grain: float = 0.0
) -> float:
    """`relative_l2`; of a cache the larger one of keys and values, as they are read. Raises
    TypeError."""
    if isinstance(expected, CacheArrays) and isinstance(found, CacheArrays):
        if expected.k.dtype != found.k.dtype or expected.k.shape != found.k.shape:
            return float("inf")
        pairs = ((read(a), read(b)) for a, b in ((expected.k, found.k), (expected.v, found.v)))
        return max(relative_l2(*pair, grain) for pair in pairs)
    if isinstance(expected, CacheArrays) or isinstance(found, CacheArrays):
        raise TypeError("a cache can only be compared with a cache (CacheArrays)")
    return relative_l2(expected, found, grain)


def relative_l2(expected: Array, found: Array, grain: float = 0.0) -> float:
    """Largest |found - expected| / |expected| over the rows (the last dimension).

    A row's norm counts as at least the root mean square of all rows' norms, so that a row of
    tiny values is judged on the scale of its neighbours. Infinite where shapes differ, or where
    infinities and NaNs are not in the same places. grain: what each element may be off by, since
    below its smallest normal number a type has steps of one size.
    """
    if expected.shape != found.shape:
        return float("inf")
    want, got = _rows(expected), _rows(found)
    finite = np.isfinite(want)
    same = np.array_equal(want[~finite], got[~finite], equal_nan=True)
    if not same or not np.isfinite(got[finite]).all():
        return float("inf")
    want, got = np.where(finite, want, 0.0), np.where(finite, got, 0.0)
    beyond = np.maximum(np.abs(got - want) - grain, 0.0)
    errors, norms = np.linalg.norm(beyond, axis=1), np.linalg.norm(want, axis=1)
    scale = np.maximum(norms, np.sqrt(np.mean(norms**2)) if norms.size else 0.0)
    with np.errstate(divide="ignore"):
        ratios = np.divide(errors, scale, out=np.zeros_like(errors), where=errors > 0)
    return float(ratios.max(initial=0.0))


def _rows(array: Array) -> Array:
    """[rows, last dimension] in float64; one row where there are fewer dimensions."""
    last = array.shape[-1] if array.ndim > 1 else array.size
    rows: Array = wide(array).astype(np.float64).reshape(array.size // max(last, 1), last)
    return rows


def _control_error(asked: _Question, control: Control | None) -> float | None:
    """How far the control lies from the oracle: the case's own, or the first that is noticed."""
    if control is not None:
        return _distance(asked, control.inputs, control.attrs)
    best: float | None = None
    for inputs, attrs in controls(asked.op, asked.inputs, filled(asked.op, asked.attrs)):
        best = max(best or 0.0, _distance(asked, inputs, attrs))
        if best > CONTROL_FACTOR * asked.bound:
            break
    return best or None


def _distance(asked: _Question, inputs: Inputs, attrs: Mapping[str, Any]) -> float:
    other = outcome(asked.op, {**asked.inputs, **inputs}, {**asked.attrs, **attrs})
    return max(distance(value, other[name]) for name, value in asked.expected.items())


def _settled(inputs: Inputs, expected: Array, found: Array) -> Array:
    """The found tokens, with the oracle's in the rows where rounding may lead to the found one."""
    settled = np.array(found)
    if settled.shape != expected.shape:
        return settled
    for row in np.flatnonzero(settled != expected):
        if int(settled[row]) in _candidates(row_of(inputs, int(row))):
            settled[row] = expected[row]
    return settled


def _candidates(draw: Draw) -> Iterator[int]:
    """Tokens that a float32 computation may choose: thresholds and noise off by a rounding."""
    slack = limit("sample", {"logits": draw.logits}, DType.FLOAT32)
    for loosened in (0.0, slack, -slack):
        for shift in (0.0, slack, -slack):
            yield choose(draw, loosened, shift)
