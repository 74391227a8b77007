"""O12: a packed weight is the one that was given, in every format that the chip declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anychip.conform.operator_calls import bound_of, finish, judged, naming, nothing_own, opaque
from anychip.conform.operator_cases import Types, typed, types_of
from anychip.conform.operator_given import NotCovered, run_given
from anychip.conform.operator_packing import weights_account, weights_refuse
from anychip.conform.operator_parts import STEP, Floats, Parts, random_parts
from anychip.conform.proof import Proof, Status, failed, inconclusive, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.formats import PLAIN_FORMATS, block_elements
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.signature import ArgKind
from anychip.contract.weights import WeightUse
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import Case
from anychip.ops.cases.grid import sized
from anychip.ops.check import check_case
from anychip.ops.oracle import evaluate
from anychip.ops.placed import USES, OpaqueCache, place
from anychip.ops.recipe import Recipe

STACKED = ((1.0,), (0.5, 0.25, 0.25))
"""Shares of the rows that each part of a weight has."""
GARBAGE = 0xEE
TIED = frozenset({WeightUse.EMBEDDING, WeightUse.LM_HEAD})
SIZES = {
    "embedding": {"T": 9, "V": 64, "K": 96},
    "linear": {"T": 5, "K": 96, "N": 64},
    "lm_head": {"T": 5, "K": 96, "V": 64},
    "attention_block": {"T": 3, "K": 96},
    "mlp_block": {"T": 3, "K": 64, "I": 96},
    "grouped_linear": {"T": 5, "K": 96, "N": 64, "E": 2},
    "expert_mlp": {"T": 3, "K": 64, "I": 96, "E": 2, "P": 2},
}
"""Sizes whose weights have whole blocks of 32 along K."""
ALONG = {"attention_block": {"D": 2}, "mlp_block": {"I": 1}, "expert_mlp": {"I": 1}}
"""Other sizes that make a K, and by how much."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A case and its weights in a format. The case holds what they stand for, in float32."""

    case: Case
    weights: dict[str, Parts]


def weights_kept(op: str) -> Callable[[Subject], Proof]:
    """O12 of one operator."""

    def run(subject: Subject) -> Proof:
        chip = subject.chip
        problem = weights_refuse(chip) or weights_account(chip, USES.get(op, WeightUse.LINEAR))
        if problem is not None:
            return failed(problem)
        try:
            return _by_whom(chip, op)
        except OpaqueCache as error:
            return opaque(chip, op, error)

    return run


def _by_whom(chip: Chip, op: str) -> Proof:
    """The chip's own implementations, or the recipe where weights lie as plain tensors."""
    if chip.operators.of(op):
        return _judge(chip, op, chip.operators.of(op))
    with Recipe(chip, op) as recipe:
        composed = _judge(chip, op, (recipe,))
    return composed if composed.status is not Status.INCONCLUSIVE else nothing_own(op)


def _judge(chip: Chip, op: str, implementations: tuple[Implementation, ...]) -> Proof:
    """Every format that the chip makes such a weight of, by every implementation that covers it."""
    formats: set[str] = set()
    declined = {f: _all_declined(chip, op, f) for f in chip.capabilities().weight_formats}
    asked = [format for format, reason in declined.items() if reason is None]
    for format in asked:
        for implementation in implementations:
            for types in types_of(chip, op):
                problem = _in_format(chip, implementation, types, format)
                if problem is _DECLINED:
                    continue
                formats.add(format)
                if problem is not None:
                    where = f"{implementation.id}, {format}, {types.activation.value}"
                    return failed(f"{where}: {problem}")
        problem = _tied(chip, format) if op == "lm_head" else None
        if problem is not None:
            return failed(f"tied weight, {format}: {problem}")
    lacking = [f for f in asked if f not in formats]
    if lacking:
        return inconclusive(f"no implementation of '{op}' covers weights in {', '.join(lacking)}")
    text, told = f"{', '.join(sorted(formats))}: one part and three", _told(declined)
    if declined and not asked:
        return unsupported(told)
    return passed(f"{text}; {told}" if told else text, formats=len(formats))


def _told(declined: Mapping[str, str | None]) -> str:
    """Formats by the reason why they are declined; empty where none is."""
    reasons = dict.fromkeys(reason for reason in declined.values() if reason)
    by_reason = ((r, ", ".join(f for f, why in declined.items() if why == r)) for r in reasons)
    return "; ".join(f"{formats} declined: {reason}" for reason, formats in by_reason)


def _all_declined(chip: Chip, op: str, format: str) -> str | None:
    """Why the chip makes no weight of the format, in one part or in three; None where it does."""
    reasons = [_declined_weight(chip, op, format, shares) for shares in STACKED]
    return None if None in reasons else reasons[0]


def _declined_weight(chip: Chip, op: str, format: str, shares: tuple[float, ...]) -> str | None:
    """Why `Weights.declines` such parts of one of the operator's weights."""
    uses, case = frozenset({USES.get(op, WeightUse.LINEAR)}), sized(op, **_sizes(op, format))
    for name in weight_arguments(op):
        rows, columns = case.inputs[name].shape
        shapes = tuple((int(rows * share), columns) for share in shares)
        reason = chip.weights.declines((format,) * len(shapes), shapes, uses)
        if reason is not None:
            return reason
    return None


_DECLINED = "declined"


def _in_format(chip: Chip, implementation: Implementation, types: Types, format: str) -> str | None:
    """What is wrong, None where nothing is, _DECLINED where nothing is covered."""
    asked = False
    for shares in STACKED:
        if _declined_weight(chip, implementation.op, format, shares) is not None:
            continue
        for seed in ("first", "second"):  # same shapes: a cached packing shows
            packed = _packed(chip, implementation.op, types, (format, shares, seed))
            problem = _run(chip, packed, implementation)
            if problem is _DECLINED:
                continue
            asked = True
            if problem is not None:
                return f"{len(shares)} parts, {seed} weight of its shape: {problem}"
    return None if asked else _DECLINED


def _packed(chip: Chip, op: str, types: Types, how: tuple[str, tuple[float, ...], str]) -> Packed:
    """how: format, shares of the parts, seed."""
    format, shares, seed = how
    case = typed(sized(op, **_sizes(op, format)), types)
    weights, inputs = {}, dict(case.inputs)
    for name in weight_arguments(op):
        rows, columns = case.inputs[name].shape
        counts = tuple(int(rows * share) for share in shares)
        step = _largest_inside(op, inputs, case.attrs) / 127 if name == "down" else STEP
        weights[name] = random_parts(format, counts, columns, f"{seed} {name}", step)
        inputs[name] = _held(chip, op, weights[name])
    return Packed(replace(case, inputs=inputs, name=f"{format} {seed}", control=None), weights)


def _largest_inside(op: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> float:
    """The largest magnitude of what `down` multiplies. It is a product, and reaches far beyond its
    usual size: a scale that is not made for it would clip it or drown it."""
    inner = inputs["down"].shape[1]
    if op == "mlp_block":
        whole = {**inputs, "down": np.eye(inner), "down_bias": None}
        return float(np.abs(evaluate(op, whole, attrs).outputs[0]).max())
    plain = {"x": inputs["x"], "weight": inputs["gate_up"], "bias": None}
    rows = evaluate("linear", plain, {}).outputs[0].reshape(-1, 2 * inner)  # of every expert
    return float(np.abs(evaluate("silu_and_mul", {"x": rows}, {}).outputs[0]).max())


def _sizes(op: str, format: str) -> dict[str, int]:
    """SIZES with whole blocks of the format along each K."""
    sizes, block = dict(SIZES[op]), block_elements(format)
    for name, times in ({"K": 1} | ALONG.get(op, {})).items():
        step = max(block // times, 1)
        sizes[name] = -(-sizes.get(name, 16) // step) * step
    return sizes


def weight_arguments(op: str) -> tuple[str, ...]:
    """Arguments that are weights."""
    return tuple(a.name for a in CATALOGUE[op].inputs if a.kind is ArgKind.WEIGHT)


def _held(chip: Chip, op: str, parts: Parts) -> Floats:
    """The weight's values, rounded to the plain dtype that the chip says it keeps it in."""
    formats, shapes = zip(*((p.format, p.shape) for p in parts.parts), strict=True)
    use = frozenset({USES.get(op, WeightUse.LINEAR)})
    kept = chip.weights.plan(formats, shapes, use).format
    if kept not in PLAIN_FORMATS:
        return parts.dense
    rounded: Floats = parts.dense.astype(NUMPY_DTYPES[DType(kept)]).astype(np.float32)
    return rounded


def _run(chip: Chip, packed: Packed, implementation: Implementation) -> str | None:
    """One call whose weights' host bytes are overwritten as soon as they are packed."""
    case = packed.case
    parts = {name: weight.parts for name, weight in packed.weights.items()}
    with naming(case, implementation), place(chip, case.op, case.inputs, case.attrs, parts) as at:
        for raw in (r for weight in packed.weights.values() for r in weight.raw):
            raw[...] = GARBAGE
        if implementation.declines(at.call.spec) is not None:
            return _DECLINED
        launch = at.prepare(implementation)
        at.poison()
        finish(chip, launch)
        damaged, found = at.damaged(), at.outcome()
    if damaged is not None:
        return f"bytes beside '{damaged}' were written"
    verdict = judged(case, found, implementation)
    return None if verdict.ok else verdict.text


def _tied(chip: Chip, format: str) -> str | None:
    """One weight packed for lookups and for logits gives both."""
    sizes = _sizes("lm_head", format)
    parts = random_parts(format, (sizes["V"],), sizes["K"], "tied")
    weight = chip.weights.prepare(parts.parts, TIED)
    try:
        for op, name in (("embedding", "table"), ("lm_head", "weight")):
            for case, implementation in _tied_calls(chip, op, format):
                held = parts.dense
                if weight.spec.format in PLAIN_FORMATS:
                    held = held.astype(NUMPY_DTYPES[DType(weight.spec.format)]).astype(np.float32)
                case = replace(case, inputs={**case.inputs, name: held}, control=None)
                given = {**case.inputs, name: weight}
                try:
                    found = run_given(chip, op, given, case.attrs, implementation)
                except NotCovered:
                    continue
                verdict = check_case(case, found, bound=bound_of(case, implementation))
                if not verdict.ok:
                    return f"{implementation.id}: {verdict.text}"
    finally:
        chip.weights.release(weight)
    return None


def _tied_calls(chip: Chip, op: str, format: str) -> Iterator[tuple[Case, Implementation]]:
    for implementation in chip.operators.of(op):
        for types in types_of(chip, op):
            yield typed(sized(op, **_sizes(op, format)), types), implementation
