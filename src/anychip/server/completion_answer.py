"""Answers of /v1/completions, in OpenAI's words."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import msgspec

from anychip.http.stream import DONE, TextEvents, event
from anychip.server.choice import Choice, Piece
from anychip.server.generation import Generation
from anychip.server.logprobs import CompletionTeller, PromptLogprobs, joined, prompt_logprobs
from anychip.server.openai_protocol import (
    Completion,
    CompletionChoice,
    CompletionRequest,
    Usage,
    usage_of,
)
from anychip.server.service import Service


class CompletionAnswer:
    """The generation of one call. Where more choices are drawn than told, the most probable are
    told: those with the highest mean logprob of a token."""

    def __init__(self, service: Service, call: CompletionRequest, generation: Generation) -> None:
        self._generation = generation
        self._service, self._call = service, call
        self._created = int(time.time())
        self._usage = bool(call.stream_options and call.stream_options.include_usage)
        self._asked = call.n or 1
        self.prompt_alone = bool(call.echo) and call.max_tokens == 0
        """Whether the prompt comes back and nothing else."""
        self._tellers: dict[int, CompletionTeller] = {}
        self._plain = not call.echo and call.logprobs is None
        self._begun: set[int] = set()
        self._texts: dict[int, TextEvents] = {}

    async def whole(self) -> Completion:
        """The answer in one piece."""
        await self._generation.run()
        choices = [self._choice(choice, index) for index, choice in enumerate(self.told())]
        return self._completion(choices, self._counted())

    def told(self) -> list[Choice]:
        """The choices that are told, once all have ended."""
        generation, told = self._generation, []
        for start in range(0, len(generation.choices), generation.n):
            drawn = generation.choices[start : start + generation.n]
            told += sorted(drawn, key=_mean, reverse=True)[: self._asked] if self._picks else drawn
        return told

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events: prompts where they come back, texts, ends, usage,
        [DONE]."""
        async with aclosing(self._generation.pieces()) as pieces:
            async for piece in pieces:
                if piece.finish is None and self._plain:
                    texts = self._texts.get(piece.choice) or self._text_events(piece.choice)
                    yield texts.event(piece.text)
                    continue
                for part in self._told(piece):
                    yield self._event(part)
        if self._usage:
            yield event(self._completion([], self._counted()))
        yield DONE

    async def parts(self) -> AsyncGenerator[CompletionChoice, None]:
        """What each choice gains, as it comes. Close the iterator to abort the rest."""
        async with aclosing(self._generation.pieces()) as pieces:
            async for piece in pieces:
                for part in self._told(piece):
                    yield part

    def _told(self, piece: Piece) -> Iterator[CompletionChoice]:
        """A piece, behind its prompt where that comes back."""
        if self._call.echo and piece.choice not in self._begun:
            self._begun.add(piece.choice)
            yield self._echo(piece.choice)
        if piece.finish is not None or not self.prompt_alone:
            yield self._part(piece)

    def _event(self, part: CompletionChoice) -> bytes:
        return event(self._completion([part], None if self._usage else msgspec.UNSET))

    def _text_events(self, index: int) -> TextEvents:
        """What writes the pieces of a choice that are text and no more."""
        texts = TextEvents(lambda text: self._event(self._part(Piece(choice=index, text=text))))
        self._texts[index] = texts
        return texts

    @property
    def _picks(self) -> bool:
        return self._generation.n > self._asked

    def _part(self, piece: Piece) -> CompletionChoice:
        logprobs = None
        if self._call.logprobs is not None and not self.prompt_alone:
            logprobs = self._teller(piece.choice).answer(piece.logprobs)
        return CompletionChoice(
            index=piece.choice,
            text="" if self.prompt_alone else piece.text,
            finish_reason=piece.finish,
            matched_stop=msgspec.UNSET if piece.finish is None else piece.matched,
            logprobs=logprobs,
        )

    def _choice(self, choice: Choice, index: int) -> CompletionChoice:
        echo = self._echo(choice.index) if self._call.echo else None
        text = "" if self.prompt_alone else choice.text
        logprobs = echo.logprobs if echo else None
        if self._call.logprobs is not None and not self.prompt_alone:
            answer = self._teller(choice.index).answer(choice.logprobs)
            logprobs = answer if logprobs is None else joined(logprobs, answer)
        return CompletionChoice(
            index=index,
            text=echo.text + text if echo else text,
            finish_reason=choice.finish,
            matched_stop=choice.matched,
            logprobs=logprobs,
            prompt_logprobs=self._of_prompt(choice.index),
        )

    def _of_prompt(self, choice: int) -> PromptLogprobs | msgspec.UnsetType:
        if self._call.prompt_logprobs is None:
            return msgspec.UNSET
        generation, table = self._generation, self._service.tokenizer.table
        first = generation.choices[choice - choice % generation.n]
        prompt = generation.prompts[choice // generation.n]
        return prompt_logprobs(prompt, first.prompt_logprobs, table.piece)

    def _echo(self, choice: int) -> CompletionChoice:
        """The prompt of a choice, as the beginning of its text."""
        prompt = self._generation.prompts[choice // self._generation.n]
        logprobs = None
        if self._call.logprobs is not None:
            first = self._generation.choices[choice - choice % self._generation.n]
            logprobs = self._teller(choice).prompt(prompt, first.prompt_logprobs)
        return CompletionChoice(index=choice, text=self._text_of(choice, prompt), logprobs=logprobs)

    def _text_of(self, choice: int, prompt: Sequence[int]) -> str:
        """The prompt as it was sent, or what its tokens write."""
        sent = self._call.prompt
        if isinstance(sent, list) and isinstance(sent[0], str):
            sent = str(sent[choice // self._generation.n])
        return sent if isinstance(sent, str) else self._service.tokenizer.decode(prompt)

    def _teller(self, choice: int) -> CompletionTeller:
        if choice not in self._tellers:
            self._tellers[choice] = CompletionTeller(self._service.tokenizer.table.piece)
        return self._tellers[choice]

    def _counted(self) -> Usage:
        usage = self._generation.usage()
        if self.prompt_alone:
            usage = msgspec.structs.replace(usage, completion_tokens=0)
        return usage_of(usage)

    def _completion(
        self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None
    ) -> Completion:
        return Completion(
            id=self._generation.origin.rid,
            created=self._created,
            model=self._service.model_name,
            choices=choices,
            usage=usage,
        )


def _mean(choice: Choice) -> float:
    """Mean logprob of its tokens."""
    scores = [one.scores.logprob for one in choice.logprobs]
    return sum(scores) / len(scores) if scores else 0.0
