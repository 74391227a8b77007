"""How much a level got done: its throughput, and what a step of the engine held."""

from __future__ import annotations

import msgspec
import numpy as np

from anychip.bench.load.bootstrap import Estimate, rate
from anychip.bench.load.calls import Answer, Run
from anychip.bench.watching import Watching


class Composition(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of the engine held, on average. decoded: tokens generated; prefilled: tokens of
    prompts that were computed."""

    steps_per_second: float
    decoded: float
    prefilled: float


def composed(watched: Watching) -> Composition | None:
    """From the first reading of the engine's books to the last; None where no step lay between."""
    if len(watched.polls) < 2:
        return None
    first, last = watched.polls[0], watched.polls[-1]
    steps = last.stats.steps - first.stats.steps
    if steps <= 0 or last.at_s <= first.at_s:
        return None
    computed = [poll.stats.prompt_tokens - poll.stats.cached_tokens for poll in (first, last)]
    return Composition(
        steps_per_second=steps / (last.at_s - first.at_s),
        decoded=(last.stats.generated_tokens - first.stats.generated_tokens) / steps,
        prefilled=(computed[1] - computed[0]) / steps,
    )


def steady(run: Run, seconds: float | None) -> Estimate:
    """Output tokens a second while all callers were busy: until the last of them began its last
    call, or for `seconds`."""
    last = max(answer.sent_s for answer in run.answers)
    until = seconds if seconds is not None else (last or run.seconds)
    times: list[float] = []
    amounts: list[float] = []
    for answer in run.answers:
        pieces = [time for time in _pieces(answer) if time <= until]
        times += pieces
        total = len(answer.gaps) + 1
        amounts += [answer.output_tokens / total] * len(pieces)
    return rate(times, amounts, until) or Estimate(0.0, 0.0, 0.0)


def _pieces(answer: Answer) -> list[float]:
    if answer.failure is not None or answer.first_s is None:
        return []
    return [float(time) for time in np.cumsum([answer.first_s, *answer.gaps])]
