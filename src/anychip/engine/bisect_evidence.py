"""What tells a defect from a near-tie: the step where two texts part, against the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from anychip.engine.bisect import Bisection
from anychip.engine.checking import step_checker
from anychip.engine.loaded import Answer, LoadedModel, Logits, answer
from anychip.run.check import StepChecker


class Verdict(str, Enum):
    """Why the texts part. ROUNDING: every operator of both chips is within its limit."""

    DEFECT = "defect"
    REFERENCE = "defect of the reference"
    ROUNDING = "rounding"


@dataclass(frozen=True)
class CulpritError:
    """A culprit's largest relative L2 error against the oracle in one step, and its limit."""

    chip: str
    op: str
    implementation: str
    error: float
    limit: float

    def __str__(self) -> str:
        text = f"{self.chip}, {self.implementation}: largest error of the step against the oracle "
        return text + f"{self.error:.3g}, limit {self.limit:.3g}"


@dataclass(frozen=True)
class Evidence:
    """The first differing token. margin: of the reference's two best logits there; difference:
    the largest between the chips' logits; own_id and it are None where the chip had no token.
    own, reference: calls of that step that diverge from the oracle, on each chip; checked: calls
    that were compared, on both. errors: of the culprits, on both."""

    token: int
    own_id: int | None
    reference_id: int
    margin: float
    difference: float | None
    own: tuple[str, ...]
    reference: tuple[str, ...]
    checked: int
    errors: tuple[CulpritError, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Who is at fault."""
        if self.own:
            return Verdict.DEFECT
        return Verdict.REFERENCE if self.reference else Verdict.ROUNDING

    def __str__(self) -> str:
        own = "none" if self.own_id is None else self.own_id
        text = f"token {self.token}: {own}, the reference has {self.reference_id}; margin of the "
        text += f"reference's two best logits {self.margin:.3g}"
        if self.difference is not None:
            text += f", largest difference of the logits {self.difference:.3g}"
        return text


@dataclass(frozen=True)
class Asked:
    """first: index of the token. names: of the two chips, for people. ops: the culprits."""

    first: int
    names: tuple[str, str]
    ops: frozenset[str]


def evidence(found: Bisection, own: Answer, reference: Answer, asked: Asked) -> Evidence:
    """Run the step that gives the token on both chips, every operator against the oracle."""
    first, prompt = asked.first, found.prompt
    ours, theirs = (_checked(side, prompt, first) for side in (found.own, found.reference))
    there = first < len(own.tokens)
    return Evidence(
        token=first,
        own_id=own.tokens[first] if there else None,
        reference_id=reference.tokens[first],
        margin=margin(reference.logits[first]),
        difference=_largest(own.logits[first], reference.logits[first]) if there else None,
        own=tuple(map(str, ours.found.values())),
        reference=tuple(map(str, theirs.found.values())),
        checked=ours.checked + theirs.checked,
        errors=(*_errors(ours, asked.names[0], asked), *_errors(theirs, asked.names[1], asked)),
    )


def _errors(judge: StepChecker, chip: str, asked: Asked) -> Iterator[CulpritError]:
    for (op, implementation), worst in judge.counts.worst.items():
        if op in asked.ops:
            yield CulpritError(chip, op, implementation, worst.relative_l2, worst.limit)


def margin(logits: Logits) -> float:
    """How far the best logit lies above the second."""
    second, best = np.partition(logits.astype(np.float64), -2)[-2:]
    return float(best - second)


def _largest(own: Logits, reference: Logits) -> float:
    return float(np.abs(own - reference).max())


def _checked(side: LoadedModel, prompt: Sequence[int], first: int) -> StepChecker:
    """What checked the step that gives token `first`."""
    config = side.config
    judge = step_checker(
        side.opened, config.check_ops_path, config.device_index, config.chip_option
    )
    with side.session() as session:

        def goes_on(found: Answer) -> bool:
            if len(found.tokens) == first:
                session.runner.checker = judge
            return len(found.tokens) <= first

        if first == 0:
            session.runner.checker = judge
        answer(session, prompt, first + 1, goes_on=goes_on)
    return judge
