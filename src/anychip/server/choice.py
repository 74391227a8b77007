"""One sequence of a call: its tokens so far, their text up to a stop string, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anychip.patterns.moves import Moves
from anychip.request import FinishReason, StepOutput, TokenLogprob
from anychip.server.sampling import Sampling
from anychip.text.stop import StopChecker
from anychip.text.tokenizer import Tokenizer


class ScoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, and how probable it and others were."""

    token: int
    scores: TokenLogprob


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice gained; the last one carries `finish` (stop, length or abort).

    matched: the stop string or stop token that ended it. logprobs: of the tokens gained.
    """

    choice: int
    text: str = ""
    finish: str | None = None
    matched: str | int | None = None
    logprobs: tuple[ScoredToken, ...] = ()


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens become text. at_start: they begin a text, and do not go on with the prompt's.

    shown: special tokens that are part of the text, for who reads it. patterns: the call's stop
    patterns, shared by its choices.
    """

    at_start: bool = False
    shown: frozenset[int] = frozenset()
    patterns: Moves | None = None


PLAINLY = Writing()


class Choice:
    """Takes the outputs of one sequence. token_ids and logprobs end where the answer does.

    prompt_logprobs: of the prompt's tokens, as far as they were asked for.
    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        sampling: Sampling,
        *,
        interval: int,
        writing: Writing,
    ) -> None:
        self.index = index
        self.token_ids: list[int] = []
        self.logprobs: list[ScoredToken] = []
        self.prompt_logprobs: list[TokenLogprob] = []
        self.finish: str | None = None
        self.matched: str | int | None = None
        self.cached_tokens = 0
        self.retractions = 0
        self._written: list[str] = []
        self._detokenizer = tokenizer.detokenizer(
            skip_special_tokens=sampling.skip_special_tokens,
            shown=writing.shown,
            at_start=writing.at_start,
        )
        self._stops: StopChecker | None = None
        if sampling.stop or writing.patterns is not None:
            trim = not sampling.no_stop_trim
            self._stops = StopChecker(sampling.stop, writing.patterns, trim=trim)
        self._keeps_stop = sampling.no_stop_trim
        self._least = sampling.min_tokens
        self._interval = interval
        self._unsent = self._unscored = 0
        self._due = 1
        self._cut = False

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._written)

    def take(self, output: StepOutput) -> Piece | None:
        """Take in a step's output; a piece when something is to be told."""
        if output.cached_tokens > self.cached_tokens:
            self.cached_tokens = output.cached_tokens
        if output.retractions > self.retractions:
            self.retractions = output.retractions
        if output.prompt_logprobs:
            self.prompt_logprobs += output.prompt_logprobs
        if self._cut:
            self.finish = "stop"
            return self._piece()
        if self._stops is None and output.finish is None and not output.logprobs:  # most are so
            self._written.append(self._detokenizer.feed(output.token_ids))
            self.token_ids += output.token_ids
        else:
            self._read(output)
            if self.finish is None and output.finish is not None:
                self._end(output.finish)
        if self.finish is None and len(self.token_ids) < self._due:
            return None
        self._due = len(self.token_ids) + self._interval
        return self._piece()

    def cut(self) -> None:
        """End the answer here: what comes next is not part of it."""
        self._cut = True

    def _piece(self) -> Piece | None:
        text = "".join(self._written[self._unsent :])
        self._unsent = len(self._written)
        scored = tuple(self.logprobs[self._unscored :]) if self.logprobs else ()
        if not text and not scored and self.finish is None:
            return None
        self._unscored = len(self.logprobs)
        return Piece(
            choice=self.index, text=text, finish=self.finish, matched=self.matched, logprobs=scored
        )

    def _read(self, output: StepOutput) -> None:
        tokens, before = output.token_ids, len(self.token_ids)
        # The stop token counts as generated; its text is nobody's business unless it is asked for.
        stop_token = tokens[-1:] if output.finish is FinishReason.STOP else ()
        shown = tokens[: len(tokens) - len(stop_token)]
        if self._stops is None:
            self._written.append(self._detokenizer.feed(shown))
            self.token_ids.extend(shown)
        else:
            self._read_until_stop(shown)
        if stop_token and self.finish is None:
            self.token_ids.extend(stop_token)
            self.matched = stop_token[0]
            if self._keeps_stop:
                self._check(self._detokenizer.feed(stop_token))
        taken = self.token_ids[before:]
        for token, scores in zip(taken, output.logprobs, strict=False):  # none, or one for each
            self.logprobs.append(ScoredToken(token=token, scores=scores))

    def _read_until_stop(self, tokens: Sequence[int]) -> None:
        """One token at a time, so that none after the stop string is counted."""
        for token in tokens:
            self.token_ids.append(token)
            if self._check(self._detokenizer.feed((token,))):
                return

    def _check(self, text: str) -> bool:
        """Write `text` up to a stop string; whether there was one."""
        if self._stops is None or len(self.token_ids) < self._least:
            self._written.append(text)
            return False
        result = self._stops.feed(text)
        self._written.append(result.text_to_emit)
        if result.stopped is None:
            return False
        self.finish, self.matched = "stop", result.stopped
        return True

    def _end(self, finish: FinishReason) -> None:
        if self._check(self._detokenizer.flush()):
            return
        if self._stops is not None:
            self._written.append(self._stops.flush())
        self.finish = finish.value
