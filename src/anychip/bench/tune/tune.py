"""`anychip tune`: both passes over a plan, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .advice import Advice, advise, no_advice
from .judge import Series, best_of_each
from .kept import Kept, Row, stamp
from .measure import Measure, Measured, measure
from .plan import BASE, Pass, Plan, one_by_one, together
from .prepare import Prepared, TuneError
from .session import Session, Watcher, notes_of
from .state import Done, Runs


def tune(prepared: Prepared, watcher: Watcher, measured: Measure | None = None) -> Kept:
    """Make the runs that are not there yet, and judge. KeyboardInterrupt leaves in the folder what
    was made.

    measured: makes a run; None: on a server of its own. Raises StateError, TuneError.
    """

    def on_server(words: Sequence[str], log: Path) -> Measured:
        return measure(prepared.load, words, log)

    asked, plan = prepared.asked, prepared.plan
    with Runs(asked.output, plan, resume=asked.resume) as runs:
        session = Session(plan, asked.local, runs, watcher, measured or on_server)
        first = session.stage("one by one", one_by_one(plan.variables))
        _check_measured(first, plan)
        best = best_of_each(first, plan.variables, plan.objective)
        second = session.stage("together", together(plan.variables, best))
        advice = advise(plan, first, second)
        return _kept(prepared, {"one by one": first, "together": second}, advice, runs.done)


def _check_measured(series: Sequence[Series], plan: Plan) -> None:
    """TuneError where the objective is a figure that the base does not have."""
    base = next(one for one in series if one.configuration == BASE)
    if plan.objective not in base.values:
        raise TuneError(
            f"--objective: {plan.objective}: no answer of the base has one (an answer of one token,"
            " or in one piece, has no TPOT); take another objective, or longer answers"
        )


def so_far(prepared: Prepared) -> Kept | None:
    """What an interrupted run has; None where no repeat is whole."""
    plan = prepared.plan
    with Runs(prepared.asked.output, plan, resume=True) as runs:
        first = runs.series("one by one", one_by_one(plan.variables))
        if not any(one.values for one in first):
            return None
        found: Mapping[Pass, Sequence[Series]] = {"one by one": first}
        return _kept(prepared, found, no_advice(plan), runs.done)


def _kept(
    prepared: Prepared,
    passes: Mapping[Pass, Sequence[Series]],
    advice: Advice,
    runs: Sequence[Done],
) -> Kept:
    plan = prepared.plan
    return Kept(
        date=stamp(),
        plan=plan,
        fingerprint=prepared.budget.fingerprint,
        budget=prepared.budget,
        doctor=prepared.doctor,
        forced=prepared.forced,
        rows=tuple(
            Row(stage=stage, series=one) for stage, found in passes.items() for one in found
        ),
        advice=advice,
        notes=(*prepared.notes, *notes_of(runs, plan)),
    )
