"""One case on a chip: its logits against the reference, its tokens, its speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anychip.bench.regress_cases import Case
from anychip.contract.errors import ChipError
from anychip.engine.checking import step_checker
from anychip.engine.loaded import Answer, LoadedModel, Session, answers
from anychip.hostops.views import Array
from anychip.model.checkpoint import Checkpoint
from anychip.ops.check import relative_l2
from anychip.ops.composed_error import MULTIPLE
from anychip.ops.limits import ROUNDOFF
from anychip.run.divergences import DivergenceLog
from anychip.run.reference import composed_logits, reference_logits

FIRST_ID = 3
"""Token ids below are special in the tiny model."""

LEAST_SECONDS = 0.05
"""A case is timed for at least this long."""


@dataclass(frozen=True)
class Figures:
    """What a case showed. deviation: largest relative L2 of its logits against the reference.

    tokens: of each request. prefill, decode: tokens a second, of the best run; None where the route
    does not do that. wrong: what is wrong whatever the baseline says (a token, an error), or empty.
    """

    dtype: str
    deviation: float
    tokens: tuple[tuple[int, ...], ...] = ()
    prefill: float | None = None
    decode: float | None = None
    wrong: str = ""

    def with_speed_of(self, other: Figures) -> Figures:
        """The same, each speed the better of both."""
        return replace(
            self,
            prefill=_better(self.prefill, other.prefill),
            decode=_better(self.decode, other.decode),
        )


@dataclass(frozen=True)
class Named:
    """What diverges in a case, or what to look at instead. saved: the file of the call and the
    command that runs it again, or why there is none; empty where no operator diverges."""

    what: str
    saved: str = ""

    def __str__(self) -> str:
        return f"{self.what}. {self.saved}" if self.saved else self.what


def _better(speed: float | None, other: float | None) -> float | None:
    return None if speed is None or other is None else max(speed, other)


@dataclass
class References:
    """Reference logits of one model by sequence: routes share prompts."""

    checkpoint: Checkpoint
    _known: dict[tuple[int, ...], Array] = field(default_factory=dict)

    def logits(self, prompt: Sequence[int], tokens: Sequence[int]) -> Array:
        """Float64 [len(tokens), V]: what each token should have been chosen from."""
        return self.whole((*prompt, *tokens[:-1]))[len(prompt) - 1 :]

    def whole(self, sequence: tuple[int, ...]) -> Array:
        """Float64 [len(sequence), V]: what should follow each position."""
        if sequence not in self._known:
            config = self.checkpoint.config
            self._known[sequence] = reference_logits(self.checkpoint, config, sequence)
        return self._known[sequence]


def measure(model: LoadedModel, case: Case, references: References, repeats: int) -> Figures:
    """Run a case. Raises ChipError where the device is lost."""
    prompts = prompts_of(case, model.opened.checkpoint.config.vocab_size)
    dtype = model.opened.plan.dtype.value
    with model.session(chunk=case.route.chunk) as session:
        found = _run(session, case, prompts)
        tokens = tuple(tuple(a.tokens) for a in found)
        errors = [a.error for a in found if a.error]
        if errors:
            return Figures(dtype, float("inf"), tokens, wrong=errors[0])
        pairs = list(zip(prompts, found, strict=True))
        wrong = _prefix_missed(case, found) or _wrong_token(references, pairs)
        deviation = max(
            relative_l2(references.logits(p, a.tokens), np.array(a.logits)) for p, a in pairs
        )
        prefill, decode = _speeds(session, case, prompts, repeats)
    return Figures(dtype, deviation, tokens, prefill, decode, wrong)


def own_limit(model: LoadedModel, case: Case, references: References, now: Figures) -> float:
    """What rounding explains where there is no baseline: as many times the error of the recipes
    in the same dtype, at every position of the same tokens, as conformance allows."""
    checkpoint, dtype = model.opened.checkpoint, model.opened.plan.dtype
    worst = ROUNDOFF[dtype]
    prompts = prompts_of(case, checkpoint.config.vocab_size)
    for prompt, tokens in zip(prompts, now.tokens, strict=False):
        sequence = (*prompt, *tokens[:-1])
        found = composed_logits(checkpoint, checkpoint.config, sequence, dtype)
        worst = max(worst, relative_l2(references.whole(sequence), found))
    return MULTIPLE * worst


def first_divergence(model: LoadedModel, case: Case) -> Named:
    """Run the case with every operator against the oracle; the first that diverges, or what to
    look at instead."""
    config, opened = model.config, model.opened
    judge = step_checker(opened, config.check_ops_path)
    options = config.chip_option
    kept = DivergenceLog(config.check_ops_path, opened.chip, config.device_index, options)
    judge.keep = kept.keep  # the report tells of it, not the log
    prompts = prompts_of(case, model.opened.checkpoint.config.vocab_size)
    with model.session(chunk=case.route.chunk) as session:
        session.runner.checker = judge
        try:
            _run(session, case, prompts)
        except ChipError as error:
            return Named(str(error))
        finally:
            session.runner.checker = None  # it would log its counts at the end
            judge.close()
        for found in judge.found.values():
            return Named(str(found), found.kept)
        return Named(
            f"no operator diverges from the oracle in {judge.checked} calls: look at weights, "
            "caches and page tables"
        )


def prompts_of(case: Case, vocabulary: int) -> list[list[int]]:
    """Token ids of each request, the same in every run."""
    noise = np.random.default_rng(case.length)
    return [noise.integers(FIRST_ID, vocabulary, n).tolist() for n in case.lengths]


def _run(session: Session, case: Case, prompts: list[list[int]]) -> list[Answer]:
    if case.route.cached:
        answers(session, prompts, 1, keep_logits=False)
    return answers(session, prompts, case.route.tokens)


def _speeds(
    session: Session, case: Case, prompts: list[list[int]], repeats: int
) -> tuple[float | None, float | None]:
    """Prefill and decode tokens a second, of the best run: others use the machine as well, and a
    run of a millisecond is either disturbed or not. As many runs as asked for, and more where these
    are over too soon."""
    runs: list[tuple[float, float]] = []
    begun = time.perf_counter()
    while len(runs) < repeats or time.perf_counter() - begun < LEAST_SECONDS:
        runs.append(_timed(session, case, prompts))
    prefill, decode = (max(speeds) for speeds in zip(*runs, strict=True))
    return prefill, decode if case.route.tokens > 1 else None


def _timed(session: Session, case: Case, prompts: list[list[int]]) -> tuple[float, float]:
    """Tokens a second of one more run: prefill, and decode, 0 where there is none."""
    if not case.route.cached:
        session.engine.flush_cache()
    found = answers(session, prompts, case.route.tokens, keep_logits=False)
    first = max(a.times[0] for a in found)
    later = sum(len(a.tokens) - 1 for a in found)
    last = max(a.times[-1] for a in found)
    return sum(map(len, prompts)) / first, later / (last - first) if later else 0.0


def _prefix_missed(case: Case, found: list[Answer]) -> str:
    missed = case.route.cached and not all(a.cached for a in found)
    return "the prefix cache was not hit" if missed else ""


def _wrong_token(references: References, pairs: list[tuple[list[int], Answer]]) -> str:
    """The first token that is not the reference's best, unless its logits explain it: the
    reference's margin must then be under twice the error of the logits."""
    for prompt, answer in pairs:
        wanted_rows = references.logits(prompt, answer.tokens)
        rows = zip(answer.tokens, answer.logits, wanted_rows, strict=True)
        for index, (token, got, wanted) in enumerate(rows):
            best = int(wanted.argmax())
            margin = float(wanted[best] - wanted[token])
            error = float(np.abs(got - wanted).max())
            if token != best and not margin < 2 * error:
                return f"token {index} is {token}, not {best} (margin {margin:.3g})"
    return ""
