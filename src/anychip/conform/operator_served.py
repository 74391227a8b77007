"""R1: who serves an operator in each declared dtype, decided from specs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anychip.conform.operator_calls import spec_of
from anychip.conform.operator_cases import Types, asked, mixed_types, types_of
from anychip.conform.proof import Proof, missing, passed, unsupported
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.registration import Chip
from anychip.contract.signature import Tier
from anychip.ops.decide import Decider
from anychip.ops.recipe import traced
from anychip.ops.record import MISSING, Recorder, Served
from anychip.ops.trace import Ops


def served(op: str) -> Callable[[Subject], Proof]:
    """R1 of one operator."""

    def run(subject: Subject) -> Proof:
        chip, how = subject.chip, set[str]()
        types = types_of(chip, op)
        for one in (*types, *mixed_types(chip, op)):
            for case, rows in _recorded(chip, op, one):
                gap = _gap(op, rows)
                if gap is not None:
                    return _unserved(op, f"{op} in {one.text(op)} ({case}): {gap}")
                how |= {r.implementation for r in rows if r.op == op} or {"composed"}
        return _proof(op, sorted(how), ", ".join(t.text(op) for t in types))

    return run


def _recorded(chip: Chip, op: str, types: Types) -> Iterator[tuple[str, list[Served]]]:
    """Each case's name, and who would serve it: the operator, or the parts of its recipe."""
    decider = Decider(chip.operators, proved=chip.operators.ids)
    for case in asked(chip, op, types):
        recorder = Recorder(decider)
        traced(Ops(recorder), spec_of(chip, case))
        yield case.name, recorder.served()


def _gap(op: str, rows: list[Served]) -> str | None:
    """What is missing; None where the operator is served."""
    if CATALOGUE[op].tier is Tier.FUSED:
        composed = any(r.op == op and r.kind == "composed" for r in rows)
        return "no fused implementation" if composed else None
    for row in rows:
        if row.kind == MISSING:
            part = "" if row.op == op else f"its recipe needs '{row.op}': "
            return f"{part}{'; '.join(row.why)}"
    return None


def _unserved(op: str, text: str) -> Proof:
    if CATALOGUE[op].tier is Tier.FUSED:
        return unsupported(f"{text}; it is unrolled")
    way_out = "add an implementation to the table that covers it"
    if CATALOGUE[op].tier is not Tier.PRIMITIVE:
        way_out += ", or the primitives of its recipe"
    return missing(f"{text}. {way_out[0].upper()}{way_out[1:]}")


def _proof(op: str, how: list[str], dtypes: str) -> Proof:
    text = f"{', '.join(how)} in {dtypes}"
    if CATALOGUE[op].tier is Tier.REQUIRED and "composed" in how:
        text += "; composed: works, too slow to serve"
    return passed(text)
