"""From answers to figures: latencies, rates, goodput, hit rate, errors, lateness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from .bootstrap import Distribution, Estimate, distribution, rate, ratio
from .calls import Answer, Interrupted, LoadError, Run


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer has to keep to be good. Seconds; None: no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if value is not None and not 0 < value < float("inf"):
                raise LoadError(f"the limit of {name} is {value:g} s; it must be above 0")

    @property
    def asked(self) -> bool:
        """Whether there is any limit."""
        return self.ttft_s is not None or self.tpot_s is not None

    def kept(self, answer: Answer) -> bool:
        """Whether the answer is whole and within the limits; one token has no TPOT to miss."""
        if answer.failure is not None or answer.ttft_s is None:
            return False
        first = self.ttft_s is None or answer.ttft_s <= self.ttft_s
        return first and (self.tpot_s is None or (answer.tpot_s or 0.0) <= self.tpot_s)


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """share: of all requests, those within the limits; per_second: the same as a rate."""

    slo: Slo
    share: Estimate
    per_second: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run. Seconds, tokens and requests a second.

    ttft, tpot, itl, total: of whole answers (itl: between two pieces of a stream). lateness: of
    all calls. short: whole answers with fewer tokens than were asked for. counted: the server told
    the tokens of every whole answer. hit_rate: share of prompt tokens that the server found in its
    cache, None where it does not tell. errors: how many by kind. unanswered: when it was
    interrupted.
    """

    loop: str
    speed: float
    concurrency: int | None
    interrupted: bool
    unanswered: int
    seconds: float
    requests: int
    succeeded: int
    short: int
    counted: bool
    prompt_tokens: int
    output_tokens: int
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    total: Distribution | None
    lateness: Distribution | None
    request_rate: Estimate | None
    output_rate: Estimate | None
    token_rate: Estimate | None
    most_at_once: int
    hit_rate: Estimate | None
    errors: dict[str, int]
    error_examples: dict[str, str]
    goodput: Goodput | None = None


def figures_of(run: Run, slo: Slo | None = None) -> Figures:
    """All figures of a run. LoadError, Interrupted where it was, if there is no answer to tell
    of."""
    if not run.answers:
        kind = Interrupted if run.interrupted else LoadError
        raise kind(
            f"no request was answered, {run.unanswered} were under way: there is nothing to tell"
        )
    good = [answer for answer in run.answers if answer.failure is None]
    return Figures(
        loop=run.loop,
        speed=run.speed,
        concurrency=run.concurrency,
        interrupted=run.interrupted,
        unanswered=run.unanswered,
        seconds=run.seconds,
        requests=len(run.answers),
        succeeded=len(good),
        short=sum(answer.output_tokens < answer.asked_tokens for answer in good),
        counted=all(answer.counted for answer in good),
        prompt_tokens=sum(answer.prompt_tokens or 0 for answer in good),
        output_tokens=sum(answer.output_tokens for answer in good),
        ttft=_single([answer.ttft_s for answer in good]),
        tpot=_single([answer.tpot_s for answer in good]),
        itl=distribution([answer.gaps for answer in good]),
        total=_single([answer.total_s for answer in good]),
        lateness=_single([answer.lateness_s for answer in run.answers]),
        request_rate=rate([answer.end_s for answer in good], [1.0] * len(good), run.seconds),
        output_rate=_token_rate(good, run.seconds, prompts=False),
        token_rate=_token_rate(good, run.seconds, prompts=True),
        most_at_once=most_at_once(run.answers),
        hit_rate=_hit_rate(good),
        errors=dict(Counter(a.failure.kind for a in run.answers if a.failure)),
        error_examples={a.failure.kind: _example(a) for a in run.answers if a.failure},
        goodput=_goodput(run, slo) if slo is not None and slo.asked else None,
    )


def _single(values: Sequence[float | None]) -> Distribution | None:
    return distribution([(value,) for value in values if value is not None])


def _example(answer: Answer) -> str:
    failure = answer.failure
    assert failure is not None
    status = "" if failure.status is None else f"HTTP {failure.status}: "
    return f"{answer.id}: {status}{failure.text}"


def _token_rate(good: Sequence[Answer], seconds: float, *, prompts: bool) -> Estimate | None:
    """Tokens a second, each when its piece came; those of a prompt when its answer began."""
    times: list[float] = []
    amounts: list[float] = []
    for answer in good:
        if answer.first_s is None:
            continue
        pieces = np.cumsum([answer.first_s, *answer.gaps]).clip(max=seconds).tolist()
        times += pieces
        amounts += [answer.output_tokens / len(pieces)] * len(pieces)
        if prompts:
            times.append(pieces[0])
            amounts.append(float(answer.prompt_tokens or 0))
    return rate(times, amounts, seconds)


def _hit_rate(good: Sequence[Answer]) -> Estimate | None:
    told = [(a.cached_tokens, a.prompt_tokens) for a in good if a.prompt_tokens is not None]
    pairs = [(cached, prompt) for cached, prompt in told if cached is not None]
    if not pairs:
        return None
    return ratio([cached for cached, _ in pairs], [prompt for _, prompt in pairs])


def _goodput(run: Run, slo: Slo) -> Goodput | None:
    kept = [float(slo.kept(answer)) for answer in run.answers]
    share = ratio(kept, [1.0] * len(kept))
    if share is None:
        return None
    return Goodput(slo=slo, share=share, per_second=sum(kept) / run.seconds if run.seconds else 0.0)


def most_at_once(answers: Sequence[Answer]) -> int:
    """The most calls that were under way together."""
    # At one moment ends come first: a caller of a closed loop sends when it has its answer.
    changes = sorted([(a.sent_s, 1) for a in answers] + [(a.end_s, -1) for a in answers])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most
