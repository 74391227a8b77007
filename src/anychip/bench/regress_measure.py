"""One case on a chip: its logits against the reference, its tokens, its perplexity, its speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from anychip.bench.regress_cases import Case, Place
from anychip.bench.regress_reference import References, ids
from anychip.bench.regress_speed import Speeds, Timing, timed
from anychip.engine.loaded import Answer, LoadedModel, Session, answers
from anychip.ops.check import relative_l2
from anychip.schedule.hooks import SchedulerHooks

INFINITE = float("inf")
BIAS = 4.0
"""Roundings of 100 tokens and more cancel to a tenth; a quarter is none."""
Pairs = Sequence[tuple[list[int], Answer]]


@dataclass(frozen=True)
class Perplexity:
    """Of a prompt: e to the mean loss of its tokens, on the chip and by the reference. size: root
    mean square of the reference's log probabilities."""

    chip: float
    reference: float
    size: float

    @property
    def change(self) -> float:
        """Share by which the chip's is larger than the reference's."""
        return self.chip / self.reference - 1

    def limit(self, deviation: float) -> float:
        """Largest change that is no bias, where log probabilities may be off by `deviation`.

        All errors on one side would change it by e^(deviation * size) - 1; errors of either sign
        cancel, so that a part of it, 1 / BIAS, is more than rounding makes."""
        return math.expm1(min(deviation * self.size, 700.0)) / BIAS


@dataclass(frozen=True)
class Figures:
    """What a case showed. deviation: largest relative L2 of its logits against the reference; of a
    scored prompt, of its log probabilities. tokens: of each request. differs: index of the first
    token that is not the reference's best. wrong: what is wrong whatever the baseline says (a
    token that rounding does not explain, an error), or empty.
    """

    dtype: str
    deviation: float
    tokens: tuple[tuple[int, ...], ...] = ()
    differs: int | None = None
    perplexity: Perplexity | None = None
    speeds: Speeds | None = None
    wrong: str = ""

    def with_speed_of(self, other: Figures) -> Figures:
        """The same, each speed the better of both."""
        if self.speeds is None or other.speeds is None:
            return self
        return replace(self, speeds=self.speeds.better(other.speeds))


def measure(
    model: LoadedModel, case: Case, place: Place, references: References, timing: Timing
) -> Figures:
    """Run a case. Raises ChipError where the device is lost, CasesError."""
    prompts = prompts_of(model, case, place)
    dtype = model.opened.plan.dtype.value
    with session_of(model, case, place) as session:
        found = run_case(session, case, prompts)
        tokens = tuple(tuple(a.tokens) for a in found)
        errors = [a.error for a in found if a.error]
        if errors:
            return Figures(dtype, INFINITE, tokens, wrong=errors[0])
        pairs = list(zip(prompts, found, strict=True))
        seen = _compared(references, case, pairs)
        wrong = _missed(case, place, pairs) or seen.wrong
        speeds = _speeds(session, case, prompts, timing)
    return replace(seen, dtype=dtype, tokens=tokens, wrong=wrong, speeds=speeds)


def place_of(model: LoadedModel, chunk: int) -> Place:
    """What a case's lengths mean here. chunk: the one that is asked for; chips may take less."""
    opened, plan = model.opened, model.opened.plan
    chunk, hits = min(chunk, opened.chunk), plan.states is None
    return Place(plan.group.page_size, chunk, plan.context_length, hits)


@contextmanager
def session_of(model: LoadedModel, case: Case, place: Place) -> Iterator[Session]:
    """An engine that goes the case's way."""
    chunk = place.chunk if case.how.chunked else None
    hooks = SchedulerHooks(force_retract_every=case.how.retract_every)
    with model.session(chunk=chunk, hooks=hooks) as session:
        yield session


def prompts_of(model: LoadedModel, case: Case, place: Place) -> list[list[int]]:
    """Token ids of each request, the same in every run. Raises CasesError."""
    lengths = case.lengths(place)
    vocabulary = model.opened.checkpoint.config.vocab_size
    return [ids(lengths[0] + n, length, vocabulary) for n, length in enumerate(lengths)]


def run_case(session: Session, case: Case, prompts: list[list[int]]) -> list[Answer]:
    """Answers, with the logits that tokens were chosen from."""
    if case.how.warm:
        warm(session, prompts)
    return answers(session, prompts, case.how.tokens, score=case.how.scored)


def warm(session: Session, prompts: list[list[int]]) -> None:
    """Compute prompts that part from these at the last token."""
    others = [[*prompt[:-1], prompt[-1] - 1] for prompt in prompts]
    answers(session, others, 1, keep_logits=False)


def _compared(references: References, case: Case, pairs: Pairs) -> Figures:
    """Deviation, tokens and perplexity; dtype and speeds are the caller's to add."""
    if case.how.scored:
        return _scored(references, pairs)
    differs: list[int] = []
    deviation, wrong = 0.0, ""
    for prompt, answer in pairs:
        wanted = references.logits(prompt, answer.tokens)
        if len(answer.logits) != len(answer.tokens):
            return Figures("", INFINITE, wrong="the engine lost a token's logits")
        deviation = _worse(deviation, relative_l2(wanted, np.array(answer.logits)))
        at = [n for n, row in enumerate(wanted) if answer.tokens[n] != int(row.argmax())]
        differs += at[:1]
        wrong = wrong or _unexplained(answer, wanted, at)
    return Figures("", deviation, differs=min(differs, default=None), wrong=wrong)


def _worse(one: float, other: float) -> float:
    """The larger one; what is not a number is worst."""
    return other if np.isnan(other) or other > one else one


def _unexplained(answer: Answer, wanted: np.ndarray, at: Sequence[int]) -> str:
    """The first token that is not the reference's best, unless its logits explain it: the
    reference's margin must then be under twice the error of the logits."""
    for index in at:
        row, token, best = wanted[index], answer.tokens[index], int(wanted[index].argmax())
        margin = float(row[best] - row[token])
        error = float(np.abs(answer.logits[index] - row).max())
        if not margin < 2 * error:
            return f"token {index} is {token}, not {best} (margin {margin:.3g})"
    return ""


def _scored(references: References, pairs: Pairs) -> Figures:
    """Of the first prompt: how probable its tokens were."""
    prompt, answer = pairs[0]
    wanted, got = references.scores(prompt), np.array(answer.scores)
    if got.shape != wanted.shape:
        text = f"{got.size} of {wanted.size} prompt tokens have a probability"
        return Figures("", INFINITE, wrong=text)
    if not wanted.size:
        return Figures("", 0.0)
    deviation = relative_l2(wanted, got)
    size = float(np.sqrt(np.mean(wanted**2)))
    chip, reference = (float(np.exp(-scores.mean())) for scores in (got, wanted))
    return Figures("", deviation, perplexity=Perplexity(chip, reference, size))


def _missed(case: Case, place: Place, pairs: Pairs) -> str:
    """What the way was to provoke and did not."""
    for prompt, answer in pairs:
        whole = (len(prompt) - 1) // place.page * place.page
        if case.how.warm and place.hits and whole and not answer.cached:
            return "the prefix cache was not hit"
    if case.how.retract_every and not any(answer.retractions for _, answer in pairs):
        return "no request was retracted"
    return ""


def _speeds(
    session: Session, case: Case, prompts: list[list[int]], timing: Timing
) -> Speeds | None:
    """None where nobody asks for a run."""
    if not timing.repeats:
        return None

    def run() -> list[Answer]:
        session.engine.flush_cache()
        if case.how.warm:
            warm(session, prompts)
        return answers(session, prompts, case.how.tokens, keep_logits=False, score=case.how.scored)

    return timed(run, timing, sum(map(len, prompts)))
