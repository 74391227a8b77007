"""The doctor's look at a model's operators at their real shapes, in processes that may die."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.errors import ChipError
from anychip.engine.parent import die_with
from anychip.run.doctor import conform_step, told
from anychip.run.plan_run import Opened, open_run
from anychip.run.proved import record_proved
from anychip.run.real_shapes import Answer, Asked, RealShapes, worst

NAME = "real shapes"
TIMEOUT_S = 300.0
"""For all calls of a model in one process."""
ALONE_S = 60.0
"""For the calls of one implementation, in a process of its own after the first one died."""


def shape_findings(config: ServeConfig, opened: Opened) -> Iterator[Finding]:
    """One finding of all that agrees, one for each operator that does not, one for each guess."""
    began = time.monotonic()
    asked = RealShapes(opened).calls()
    ids = list(dict.fromkeys(a.implementation.id for a in asked))
    seen = _nothing()
    try:
        _add(seen, _ask(config, ids, TIMEOUT_S))
    except ChildFailed as error:
        yield Finding(NAME, Verdict.UNKNOWN, f"the process that ran all: {error}; one by one now")
        seen["left"] = ids
    yield from _one_by_one(config, seen)
    yield from msgspec.convert(seen["bad"], list[Finding])
    if seen["good"]:
        calls, seconds = seen["calls"], time.monotonic() - began
        text = f"{len(seen['good'])} operators agree with the oracle in {calls} calls"
        yield Finding(NAME, Verdict.GOOD, f"{text} ({seconds:.0f} s); nearest: {seen['nearest']}")
    yield from _guesses(config, opened, asked, seen["good"])


def _nothing() -> dict[str, Any]:
    return {"bad": [], "good": [], "calls": 0, "nearest": "all exact", "left": []}


def _add(whole: dict[str, Any], seen: Mapping[str, Any]) -> None:
    """What one process saw, to what others saw before; what it left is left."""
    for name in ("bad", "good", "calls"):
        whole[name] += seen[name]
    whole["nearest"], whole["left"] = seen["nearest"], seen["left"]


def _one_by_one(config: ServeConfig, whole: dict[str, Any]) -> Iterator[Finding]:
    """Those that are left, each in a process of its own: one that kills it has a name then."""
    for one in list(whole["left"]):
        try:
            _add(whole, _ask(config, [one], ALONE_S))
        except ChildFailed as error:
            text = f"{one} at a real shape: {error}"
            step = conform_step(config, "operators")
            yield Finding(f"operator {one}", Verdict.BAD, text, step)


def _ask(config: ServeConfig, ids: Sequence[str], timeout: float) -> dict[str, Any]:
    plain = replace(config, api_key=None, admin_api_key=None)
    question = {"config": msgspec.to_builtins(plain), "parent": os.getpid(), "ids": list(ids)}
    found: dict[str, Any] = run_in_child(f"{__name__}:answer_shapes", question, timeout)
    return found


def answer_shapes(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the child does: the calls of some implementations, on a device that it opens."""
    die_with(question["parent"])
    config = msgspec.convert(question["config"], ServeConfig)
    opened = open_run(config)
    try:
        shapes = RealShapes(opened)
        calls = [a for a in shapes.calls() if a.implementation.id in question["ids"]]
        answers, bad, left = _answered(shapes, calls, conform_step(config, "operators"))
        diverging = list(worst(answers))
        bad += [_diverged(answer, conform_step(config, "operators")) for answer in diverging]
        wrong = {a.asked.implementation.id for a in diverging} | _failed_ids(bad) | left
        good = sorted({a.asked.implementation.id for a in answers} - wrong)
        return {
            "bad": msgspec.to_builtins(bad),
            "good": good,
            "calls": len(answers),
            "nearest": _nearest([a for a in answers if a.verdict.ok]),
            "left": sorted(left),
        }
    finally:
        opened.close()


def _answered(
    shapes: RealShapes, calls: Sequence[Asked], step: str
) -> tuple[list[Answer], list[Finding], set[str]]:
    """Answers, a finding for each call that raised, and what a fatal error left unasked."""
    answers, bad = list[Answer](), list[Finding]()
    for number, asked in enumerate(calls):
        try:
            answers.append(shapes.answer(asked))
        except Exception as error:  # noqa: BLE001 - a chip may raise anything
            name = asked.implementation.id
            bad.append(Finding(f"operator {name}", Verdict.BAD, told(error), step))
            if isinstance(error, ChipError) and error.fatal:  # later ones would tell of this one
                left = {a.implementation.id for a in calls[number + 1 :]} - {name}
                return answers, bad, left
    return answers, bad, set()


def _failed_ids(bad: Sequence[Finding]) -> set[str]:
    return {f.name.removeprefix("operator ") for f in bad}


def _diverged(answer: Answer, step: str) -> Finding:
    return Finding(f"operator {answer.asked.spec.op}", Verdict.BAD, answer.text, step)


def _nearest(answers: Sequence[Answer]) -> str:
    """The answer that lies closest to its limit."""
    limited = [a for a in answers if a.verdict.limit]
    if not limited:
        return "all exact"
    most = max(limited, key=lambda a: a.verdict.relative_l2 / a.verdict.limit)
    share = most.verdict.relative_l2 / most.verdict.limit
    return f"{most.asked.implementation.id} at {share:.0%} of its limit"


def _guesses(
    config: ServeConfig, opened: Opened, asked: Sequence[Asked], good: Sequence[str]
) -> Iterator[Finding]:
    """What is assumed of the vendor's calls; a guess that agreed is recorded as confirmed."""
    used = {a.implementation.id: a.implementation for a in asked}
    confirmed = [i.id for i in used.values() if i.unproved and i.id in good]
    if confirmed:
        path = record_proved(config.proved_path, opened.chip, confirmed)
        text = f"confirmed on this SDK and bound from now on: {', '.join(confirmed)} ({path})"
        yield Finding("guesses", Verdict.GOOD, text)
        opened.decider = replace(
            opened.decider, proved=opened.decider.proved | frozenset(confirmed)
        )
    assumed = [f"{i.op}, {i.call}: {i.assumed}" for i in used.values() if i.assumed]
    if assumed:
        step = "compare with the vendor's headers and documents"
        yield Finding("assumed", Verdict.UNKNOWN, "\n".join(assumed), step)
