"""Answers of /generate, in SGLang's words."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from anychip.http.stream import DONE, event
from anychip.request import NO_LOGPROBS, TokenLogprob
from anychip.server.choice import Choice
from anychip.server.generation import Generation
from anychip.server.logprobs import told
from anychip.server.native_protocol import GenerateAnswer, GenerateRequest, LogprobRow, MetaInfo
from anychip.text.tokenizer import Tokenizer


class NativeAnswer:
    """The sequences of one call. alone: it asked for a single one."""

    def __init__(
        self, generation: Generation, call: GenerateRequest, tokenizer: Tokenizer, *, alone: bool
    ) -> None:
        self._generation, self._alone = generation, alone
        self._table = tokenizer.table
        self._texts = bool(call.return_text_in_logprobs)
        self._start = -1 if call.logprob_start_len is None else call.logprob_start_len

    async def whole(self) -> object:
        """All of it: an object for one sequence, a list for several."""
        await self._generation.run()
        answers = [self._answer(choice) for choice in self._generation.choices]
        return answers[0] if self._alone else answers

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Events as it comes; each holds all of its sequence so far."""
        async with aclosing(self._generation.pieces()) as pieces:
            async for piece in pieces:
                answer = self._answer(self._generation.choices[piece.choice])
                if not self._alone:
                    answer = msgspec.structs.replace(answer, index=piece.choice)
                yield event(answer)
        yield DONE

    def _answer(self, choice: Choice) -> GenerateAnswer:
        generation = self._generation
        prompt = generation.prompts[choice.index // generation.n]
        rid = generation.origin.rid
        several = len(generation.choices) > 1
        return GenerateAnswer(
            text=choice.text,
            output_ids=list(choice.token_ids),
            meta_info=MetaInfo(
                id=f"{rid}_{choice.index}" if several else rid,
                finish_reason=_finish_reason(choice),
                prompt_tokens=len(prompt),
                completion_tokens=len(choice.token_ids),
                cached_tokens=choice.cached_tokens,
                num_retractions=choice.retractions,
                e2e_latency=time.monotonic() - generation.started,
                **self._logprobs(choice, prompt),
            ),
        )

    def _logprobs(self, choice: Choice, prompt: Sequence[int]) -> dict[str, Any]:
        sampling = self._generation.sampling
        if sampling.logprobs == NO_LOGPROBS:
            return {}
        scored = choice.logprobs
        found: dict[str, Any] = {
            "input_token_logprobs": [],
            "output_token_logprobs": [self._row(one.scores.logprob, one.token) for one in scored],
        }
        if sampling.logprobs:
            found["output_top_logprobs"] = [self._top(one.scores) for one in scored]
            found["input_top_logprobs"] = []
        if self._start >= 0:
            first = self._generation.choices[choice.index - choice.index % self._generation.n]
            rows = _of_prompt(prompt, first.prompt_logprobs, self._start)
            found["input_token_logprobs"] = [
                self._row(None if s is None else s.logprob, t) for t, s in rows
            ]
            if sampling.logprobs:
                found["input_top_logprobs"] = [None if s is None else self._top(s) for _, s in rows]
        return found

    def _top(self, scores: TokenLogprob) -> list[LogprobRow]:
        return [self._row(logprob, token) for token, logprob in scores.top]

    def _row(self, logprob: float | None, token: int) -> LogprobRow:
        text = self._table.piece(token).decode("utf-8", "replace") if self._texts else None
        return None if logprob is None else told(logprob), token, text


def _of_prompt(
    prompt: Sequence[int], scores: Sequence[TokenLogprob], start: int
) -> list[tuple[int, TokenLogprob | None]]:
    """A prompt's tokens from `start` on, as far as they are scored. The very first follows on
    nothing, so it has no score."""
    if start > 0:
        return list(zip(prompt[start:], scores, strict=False))
    return list(zip(prompt, [None, *scores], strict=False))


def _finish_reason(choice: Choice) -> dict[str, Any] | None:
    if choice.finish is None:
        return None
    if choice.finish == "length":
        return {"type": "length", "length": len(choice.token_ids)}
    if choice.finish == "abort":
        return {"type": "abort", "message": "the request was aborted"}
    return {"type": choice.finish, "matched": choice.matched}
