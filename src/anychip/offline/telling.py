"""The answers of the server's endpoints in the words of `anychip.Engine`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from anychip.offline.answers import Answer, AnswerChoice, AnswerPart, TokenScore, ToolCallPart
from anychip.request import TokenLogprob
from anychip.server.chat_call import ChatAnswer
from anychip.server.chat_events import ChatEvent, ReasoningDelta, TextDelta, ToolCallStart
from anychip.server.chat_events import ToolCallArguments as Arguments
from anychip.server.choice import Choice
from anychip.server.completion_answer import CompletionAnswer
from anychip.server.generation import Generation


class Telling(Protocol):
    """One call that was understood; nothing runs before it is asked for."""

    @property
    def rid(self) -> str:
        """Its id."""

    async def whole(self) -> list[Answer]:
        """One answer a prompt. Raises ApiError."""

    def parts(self) -> AsyncGenerator[AnswerPart, None]:
        """What comes, as it comes. Close the iterator to abort the rest. Raises ApiError."""


class _Words:
    """Structs of one generation. scored: whether logprobs are told.

    silent: nothing but the prompt is told.
    """

    def __init__(self, generation: Generation, *, scored: bool, silent: bool = False) -> None:
        self.generation = generation
        self.rid = generation.origin.rid
        self._scored, self._silent = scored, silent
        self._told = [0] * len(generation.choices)

    def choice(self, choice: Choice, text: str, finish: str | None, **more: Any) -> AnswerChoice:
        """A choice that has ended."""
        ids, scores = self._gained(choice, 0)
        return AnswerChoice(
            text=text,
            token_ids=ids,
            finish_reason=finish,
            matched_stop=choice.matched,
            logprobs=scores,
            **more,
        )

    def answers(self, choices: Sequence[AnswerChoice]) -> list[Answer]:
        """One a prompt, of as many choices each."""
        n = len(choices) // len(self.generation.prompts)
        return [
            self._answer(prompt, list(choices[prompt * n : (prompt + 1) * n]))
            for prompt in range(len(self.generation.prompts))
        ]

    def part(self, index: int, **said: Any) -> AnswerPart:
        """What a choice gained since its part before: what was `said`, and ids."""
        choice = self.generation.choices[index]
        ids, scores = self._gained(choice, self._told[index])
        self._told[index] = len(choice.token_ids)
        prompt, draw = divmod(index, self.generation.n)
        return AnswerPart(
            rid=self.rid,
            prompt=prompt,
            choice=draw,
            token_ids=ids,
            logprobs=scores,
            prompt_tokens=len(self.generation.prompts[prompt]),
            completion_tokens=0 if self._silent else len(choice.token_ids),
            cached_tokens=choice.cached_tokens,
            **said,
        )

    def _answer(self, prompt: int, choices: list[AnswerChoice]) -> Answer:
        generation, usage = self.generation, self.generation.usage(prompt)
        scores = generation.choices[prompt * generation.n].prompt_logprobs
        ids = generation.prompts[prompt]
        scored = zip(ids[len(ids) - len(scores) :], scores, strict=True)
        return Answer(
            rid=self.rid,
            choices=choices,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=0 if self._silent else usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            prompt_logprobs=[_score(token, score) for token, score in scored],
        )

    def _gained(self, choice: Choice, begin: int) -> tuple[list[int], list[TokenScore]]:
        if self._silent:
            return [], []
        scored = choice.logprobs[begin:] if self._scored else []
        return choice.token_ids[begin:], [_score(one.token, one.scores) for one in scored]


def _score(token: int, scores: TokenLogprob) -> TokenScore:
    top = list(scores.top)
    return TokenScore(token_id=token, logprob=scores.logprob, rank=scores.rank, top=top)


class NativeTelling:
    """Of /generate."""

    def __init__(self, generation: Generation, *, scored: bool) -> None:
        self._words = _Words(generation, scored=scored)
        self.rid = self._words.rid

    async def whole(self) -> list[Answer]:
        """One answer a prompt."""
        words = self._words
        await words.generation.run()
        choices = words.generation.choices
        return words.answers([words.choice(one, one.text, one.finish) for one in choices])

    async def parts(self) -> AsyncGenerator[AnswerPart, None]:
        """What comes, as it comes."""
        async with aclosing(self._words.generation.pieces()) as pieces:
            async for one in pieces:
                yield self._words.part(
                    one.choice, text=one.text, finish_reason=one.finish, matched_stop=one.matched
                )


class CompletionTelling:
    """Of /v1/completions: prompts that come back, and the best of more choices."""

    def __init__(self, generation: Generation, answer: CompletionAnswer, *, scored: bool) -> None:
        self._words = _Words(generation, scored=scored, silent=answer.prompt_alone)
        self._answer = answer
        self.rid = self._words.rid

    async def whole(self) -> list[Answer]:
        """One answer a prompt."""
        shown = (await self._answer.whole()).choices
        pairs = zip(self._answer.told(), shown, strict=True)
        words = self._words
        return words.answers([words.choice(one, told.text, one.finish) for one, told in pairs])

    async def parts(self) -> AsyncGenerator[AnswerPart, None]:
        """What comes, as it comes."""
        async with aclosing(self._answer.parts()) as parts:
            async for one in parts:
                matched = None if one.matched_stop is msgspec.UNSET else one.matched_stop
                yield self._words.part(
                    one.index, text=one.text, finish_reason=one.finish_reason, matched_stop=matched
                )


class ChatTelling:
    """Of /v1/chat/completions: reasoning and tool calls too."""

    def __init__(self, answer: ChatAnswer, *, scored: bool) -> None:
        self._words = _Words(answer.generation, scored=scored)
        self._answer = answer
        self.rid = self._words.rid

    async def whole(self) -> list[Answer]:
        """The one answer."""
        words, choices = self._words, []
        for reply in await self._answer.replies():
            choice = words.generation.choices[reply.choice]
            more = {"reasoning": reply.reasoning, "tool_calls": reply.tool_calls}
            choices.append(words.choice(choice, reply.text, reply.finish, **more))
        return words.answers(choices)

    async def parts(self) -> AsyncGenerator[AnswerPart, None]:
        """What comes, as it comes."""
        async with aclosing(self._answer.events()) as events:
            async for one in events:
                yield self._words.part(one.choice, **_said(one))


def _said(one: ChatEvent) -> dict[str, Any]:
    if isinstance(one, TextDelta):
        return {"text": one.text}
    if isinstance(one, ReasoningDelta):
        return {"reasoning": one.text}
    if isinstance(one, ToolCallStart):
        return {"tool_call": ToolCallPart(index=one.index, id=one.id, name=one.name)}
    if isinstance(one, Arguments):
        return {"tool_call": ToolCallPart(index=one.index, arguments=one.delta)}
    return {"finish_reason": one.finish, "matched_stop": one.matched}
