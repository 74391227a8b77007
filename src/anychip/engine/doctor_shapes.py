"""The doctor's look at a model's operators at their real shapes, in processes that may die."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.errors import ChipError
from anychip.contract.operators import Implementation
from anychip.engine.parent import die_with
from anychip.run.doctor import conform_step, told
from anychip.run.plan_run import Opened, open_run
from anychip.run.proved import record_proved
from anychip.run.real_shapes import Answer, Asked, RealShapes, Watch, with_guesses, worst

NAME = "real shapes"
TIMEOUT_S = 300.0
"""For all calls of a model in one process; as long again for those that are then asked alone."""
ALONE_S = 120.0
"""For the calls of one implementation in a process of its own."""
CALL_S = 30.0
"""For what the chip does of one call: a process that hangs longer in it ends itself."""
HUNG = 70
"""Exit status of such a process."""


@dataclass
class Seen:
    """What processes saw. bad: implementation -> what is wrong with it. good: those that agree
    with the oracle. unsure: those among them whose wrong result would not have been noticed.
    share, nearest: the largest part of its limit that an error was, and whose. left: those that
    a fatal error kept from being asked. refused: why the device was not opened. other: the rest."""

    bad: dict[str, Finding] = field(default_factory=dict)
    other: list[Finding] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    calls: int = 0
    share: float = 0.0
    nearest: str = ""
    left: list[str] = field(default_factory=list)
    refused: str = ""

    def add(self, more: Seen) -> None:
        """What another process saw."""
        self.bad.update(more.bad)
        self.other += more.other
        self.left += more.left
        self.refused = self.refused or more.refused
        self.good += more.good
        self.unsure += more.unsure
        self.calls += more.calls
        if more.share >= self.share:
            self.share, self.nearest = more.share, more.nearest

    @property
    def text(self) -> str:
        """What agrees, and how nearly."""
        nearest = f"{self.nearest} at {self.share:.0%} of its limit" if self.share else "all exact"
        agree = f"{len(self.good)} operators agree with the oracle in {self.calls} calls"
        return f"{agree}; nearest: {nearest}"


def shape_findings(config: ServeConfig, opened: Opened) -> Iterator[Finding]:
    """One finding of all that agrees, one for each operator that does not, one for each guess."""
    began = time.monotonic()
    used = {a.implementation.id: a.implementation for a in RealShapes(config, opened).calls()}
    whole, step = Seen(), conform_step(config, "operators")
    try:
        whole.add(_ask(config, list(used), TIMEOUT_S))
    except ChildFailed as error:
        text = f"the process that ran all: {error}; one by one now"
        yield Finding(NAME, Verdict.UNKNOWN, text, "see the lines of the operators")
        whole.left = list(used)
    yield from _one_by_one(config, used, whole)
    if whole.refused:
        text = f"a process that was to run operators could not start: {whole.refused}"
        yield Finding(NAME, Verdict.BAD, text, step)
    yield from (_of_guess(used[name], finding) for name, finding in whole.bad.items())
    yield from whole.other
    if whole.unsure:
        text = f"a wrong result would not have been noticed: {', '.join(whole.unsure)}"
        yield Finding(NAME, Verdict.UNKNOWN, text, step)
    if whole.good:
        yield Finding(NAME, Verdict.GOOD, f"{whole.text} ({time.monotonic() - began:.0f} s)")
    sound = set(whole.good) - set(whole.unsure)
    yield from _confirmed(config, opened, [i for n, i in used.items() if n in sound])
    yield from _assumed(used)


def _one_by_one(
    config: ServeConfig, used: Mapping[str, Implementation], whole: Seen
) -> Iterator[Finding]:
    """Those that are left, each in a process of its own: one that kills it has a name then."""
    queue, whole.left = whole.left, []
    end, step = time.monotonic() + TIMEOUT_S, conform_step(config, "operators")
    for position, name in enumerate(queue):
        rest = end - time.monotonic()
        if rest <= 0:
            text = f"not run within {TIMEOUT_S:g} s: {', '.join(queue[position:])}"
            yield Finding(NAME, Verdict.UNKNOWN, text, step)
            return
        try:
            whole.add(_ask(config, [name], min(ALONE_S, rest)))
        except ChildFailed as error:
            text = f"{name} at a real shape: {error}"
            whole.bad[name] = Finding(f"operator {used[name].op}", Verdict.BAD, text, step)


def _of_guess(implementation: Implementation, finding: Finding) -> Finding:
    """A guess that is wrong is not bound: no fault of what is."""
    if not implementation.unproved:
        return finding
    text = f"{finding.text}; it is a guess ({implementation.assumed}) and stays unbound"
    return replace(finding, verdict=Verdict.UNKNOWN, text=text)


def _confirmed(
    config: ServeConfig, opened: Opened, sound: Sequence[Implementation]
) -> Iterator[Finding]:
    """Guesses that agreed: recorded, and bound in the looks that follow."""
    ids = [i.id for i in sound if i.unproved]
    if not ids:
        return
    text = f"confirmed on this SDK: {', '.join(ids)}"
    try:
        path = record_proved(config.proved_path, opened.chip, ids)
    except OSError as error:
        text = f"{text}; not bound, because that cannot be kept: {error}"
        yield Finding("guesses", Verdict.UNKNOWN, text, "choose another --cache-dir")
        return
    yield Finding("guesses", Verdict.GOOD, f"{text}; bound from now on ({path})")
    found = with_guesses(config, opened, ids)
    opened.decider, opened.limits = found.decider, found.limits
    opened.chunk, opened.composed_attention = found.chunk, found.composed_attention


def _assumed(used: Mapping[str, Implementation]) -> Iterator[Finding]:
    """What is taken for granted of the vendor's calls, a line each."""
    lines = [f"{i.op}, {i.call}: {i.assumed}" for i in used.values() if i.assumed]
    if lines:
        step = "compare with the vendor's headers and documents"
        yield Finding("assumed", Verdict.UNKNOWN, "\n".join(lines), step)


def _ask(config: ServeConfig, ids: Sequence[str], timeout: float) -> Seen:
    plain = replace(config, api_key=None, admin_api_key=None)
    question = {
        "config": msgspec.to_builtins(plain),
        "parent": os.getpid(),
        "ids": list(ids),
        "patience": CALL_S,
    }
    found = run_in_child(f"{__name__}:answer_shapes", question, timeout)
    return msgspec.convert(found, Seen)


def answer_shapes(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the child does: the calls of some implementations, on a device that it opens."""
    die_with(question["parent"])
    config = msgspec.convert(question["config"], ServeConfig)
    try:
        opened = open_run(config)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a chip may raise anything
        return _plain(Seen(refused=told(error)))
    shapes = RealShapes(config, opened, watching(question["patience"]))
    calls = [a for a in shapes.calls() if a.implementation.id in question["ids"]]
    seen = seen_of(shapes, calls, conform_step(config, "operators"))
    try:
        opened.close()
    except Exception as error:  # noqa: BLE001 - what was seen is not lost with it
        seen.other.append(Finding("close", Verdict.UNKNOWN, told(error), "mend the chip's close"))
    return _plain(seen)


def _plain(seen: Seen) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(seen)
    return found


def watching(patience: float) -> Watch:
    """Ends the process where the chip works on a call for longer: a thread that hangs in a
    vendor's library cannot be interrupted."""

    @contextmanager
    def watch(name: str) -> Iterator[None]:
        timer = threading.Timer(patience, _leave, (name, patience))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    return watch


def _leave(name: str, patience: float) -> None:
    sys.stderr.write(f"'{name}' did not end within {patience:g} s\n")
    sys.stderr.flush()
    os._exit(HUNG)


def seen_of(shapes: RealShapes, calls: Sequence[Asked], step: str) -> Seen:
    """Run the calls, until one fails fatally. step: what to do about what is wrong."""
    answers, bad, left = _answered(shapes, calls, step)
    for answer in worst(answers):
        name = answer.asked.implementation.id
        finding = Finding(f"operator {answer.asked.spec.op}", Verdict.BAD, answer.text, step)
        bad.setdefault(name, finding)
    left -= bad.keys()
    sound = [a for a in answers if a.asked.implementation.id not in bad.keys() | left]
    good = {a.asked.implementation.id for a in sound}
    telling = {a.asked.implementation.id for a in sound if a.telling}
    seen = Seen(bad, good=sorted(good), unsure=sorted(good - telling), left=sorted(left))
    seen.calls = len(sound)
    for answer in sound:
        share = _share(answer)
        if share > seen.share:
            seen.share, seen.nearest = share, answer.asked.implementation.id
    return seen


def _share(answer: Answer) -> float:
    """Of the limit that it was held to, a declared tolerance included."""
    bound = answer.verdict.limit * answer.asked.implementation.tolerance
    return answer.verdict.relative_l2 / bound if bound else 0.0


def _answered(
    shapes: RealShapes, calls: Sequence[Asked], step: str
) -> tuple[list[Answer], dict[str, Finding], set[str]]:
    """Answers, of each implementation that raised the first time, and what a fatal error left
    unasked."""
    answers, bad = list[Answer](), dict[str, Finding]()
    for number, asked in enumerate(calls):
        try:
            answers.append(shapes.answer(asked))
        except Exception as error:  # noqa: BLE001 - a chip may raise anything
            name = asked.implementation.id
            text = f"{name} at a real shape ({asked.sizes}): {told(error)}"
            bad.setdefault(name, Finding(f"operator {asked.spec.op}", Verdict.BAD, text, step))
            if isinstance(error, ChipError) and error.fatal:  # later ones would tell of this one
                return answers, bad, {a.implementation.id for a in calls[number + 1 :]}
    return answers, bad, set()
