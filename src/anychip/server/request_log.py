"""`--log-requests`: what calls asked for and got, in as much detail as the level says."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from anychip.config import ServeConfig
from anychip.server.exposure import SHOWS_TEXTS
from anychip.server.origin import Origin
from anychip.server.sampling import Sampling
from anychip.text.tokenizer import Tokenizer

log = logging.getLogger("anychip.server")

SAMPLING, CUT, WHOLE = 1, SHOWS_TEXTS, 3
"""Levels, each with what the ones before it show; 0 shows ids and counts alone."""
CUT_CHARS = 2048


class RequestLog:
    """Writes two lines a call, its beginning and its end; none without --log-requests."""

    def __init__(self, config: ServeConfig, tokenizer: Tokenizer) -> None:
        self._level = config.log_requests_level if config.log_requests else -1
        self._tokenizer = tokenizer

    def begun(self, origin: Origin, prompts: Sequence[tuple[int, ...]], sampling: Sampling) -> None:
        """A call was understood and goes to the engine."""
        if self._level < 0:
            return
        lengths = [len(prompt) for prompt in prompts]
        told = f"n = {sampling.n}, prompts of {lengths} tokens, priority {origin.priority}"
        if self._level >= SAMPLING:
            told += f", {_settings(sampling, texts=self._level >= CUT)}"
        if self._level >= CUT:
            told += f", prompts {[self._text(prompt) for prompt in prompts]}"
        log.info("%s begins: %s", origin.name, told)

    def ended(self, origin: Origin, answers: Sequence[str]) -> None:
        """A call is over; its other figures have a line anyway."""
        if self._level >= CUT:
            log.info("%s answers: %s", origin.name, [self._cut(text) for text in answers])

    def _text(self, prompt: tuple[int, ...]) -> str:
        whole = self._level >= WHOLE
        # A token has at least one byte, a character at most four.
        shown = prompt if whole else prompt[: 4 * CUT_CHARS]
        return self._cut(self._tokenizer.decode(shown, False))

    def _cut(self, text: str) -> str:
        if self._level >= WHOLE or len(text) <= CUT_CHARS:
            return text
        return f"{text[:CUT_CHARS]} ... (of {len(text)} characters)"


def _settings(sampling: Sampling, texts: bool) -> str:
    values = msgspec.structs.asdict(sampling)
    values.pop("n")
    values[values.pop("max_tokens_name")] = values.pop("max_tokens")
    values.pop("stop_name")
    values["emit"] = f"{len(sampling.emit)} tokens"
    if not texts:  # a stop string is the client's text too
        values["stop"] = f"{len(sampling.stop)} strings"
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))
