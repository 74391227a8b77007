"""Books what a call's sequences see: latencies, lengths and how they end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from anychip.request import FinishReason, StepOutput
from anychip.server.choice import Choice
from anychip.server.metrics.catalogue import CATALOGUE
from anychip.server.metrics.request_series import (
    BETWEEN_TOKENS,
    END_TO_END,
    FIRST_TOKEN,
    GENERATED,
    PER_TOKEN,
    PROMPT,
    QUEUED,
    RequestFigures,
)
from anychip.server.turnover import Turnover

_BETWEEN_BOUNDS = CATALOGUE[BETWEEN_TOKENS].buckets


class Timing:
    """One call's. prompts: tokens of each choice's prompt. started: `time.monotonic`."""

    def __init__(
        self, figures: RequestFigures, turnover: Turnover, started: float, prompts: Sequence[int]
    ) -> None:
        self._figures, self._turnover = figures, turnover
        self._started, self._prompts = started, prompts
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[float, int]] = {}  # when, and tokens until then
        self._queued: set[int] = set()
        self._unfinished = len(prompts)
        self._between = figures.histograms[BETWEEN_TOKENS]

    def take(self, choice: Choice, output: StepOutput) -> None:
        """After each output of a choice."""
        now = time.monotonic()
        last = self._last.get(choice.index)
        if last is not None:
            gained = len(choice.token_ids) - last[1]
            if gained:
                self._between.observe((now - last[0]) / gained, _BETWEEN_BOUNDS, gained)
                self._last[choice.index] = (now, last[1] + gained)
        if last is None or choice.finish is not None:
            self._begin_or_end(choice, output, now)

    def _begin_or_end(self, choice: Choice, output: StepOutput, now: float) -> None:
        if output.admitted_at and choice.index not in self._queued:
            self._queued.add(choice.index)
            self._figures.observe(QUEUED, max(output.admitted_at - self._started, 0.0))
        if choice.token_ids and choice.index not in self._first:
            self._first[choice.index] = now
            self._last[choice.index] = (now, len(choice.token_ids))
            self._figures.observe(FIRST_TOKEN, now - self._started)
        if choice.finish is not None:
            self._finish(choice, choice.finish, now)

    def _finish(self, choice: Choice, finish: str, now: float) -> None:
        self._turnover.ended()
        if finish == FinishReason.ABORT.value:
            return  # close() counts it
        self._unfinished -= 1
        self._figures.finished[finish] += 1
        self._figures.observe(END_TO_END, now - self._started)
        self._figures.observe(PROMPT, self._prompts[choice.index])
        self._figures.observe(GENERATED, len(choice.token_ids))
        if len(choice.token_ids) > 1:
            decode = now - self._first[choice.index]
            self._figures.observe(PER_TOKEN, decode / (len(choice.token_ids) - 1))

    def refuse(self) -> None:
        """When the engine did not take the call."""
        self._unfinished = 0

    def close(self) -> None:
        """When the call is over: what has not finished was aborted or failed."""
        self._figures.aborted += self._unfinished
