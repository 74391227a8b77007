"""A chat as the server understands it, whichever dialect it came in: checks, prompt, answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from anychip.http.errors import bad_request
from anychip.server.chat_events import ChatEvent, PlainReader, Reader, Reply, Telling
from anychip.server.chat_formats import FormatReader
from anychip.server.chat_tools import ToolWish, check_tools
from anychip.server.choice import Writing
from anychip.server.generation import Generation, Usage
from anychip.server.grammar_fields import behind_thoughts
from anychip.server.origin import Origin
from anychip.server.room import check_volume, fit_max_tokens
from anychip.server.sampling import Sampling, check_sampling
from anychip.server.service import Service
from anychip.server.texts import ChatPrompt
from anychip.server.thought_grammar import thoughts
from anychip.server.tool_grammar import FORCED, schema_wishes, tool_wish
from anychip.text.answer.reader import AnswerFormat

PLAIN = AnswerFormat()
_SET_BY_US = ("messages", "tools", "add_generation_prompt", "continue_final_message")


class ReasoningWish(msgspec.Struct, frozen=True, kw_only=True):
    """separate: reasoning is told apart from the text. stream: as it comes, not when it is over."""

    separate: bool = True
    stream: bool = True


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """What any dialect's chat comes to.

    messages: as templates expect them, in OpenAI's form. sampling: ranges not yet checked; a
    wish for a grammar is part of it. variables: for the template. continue_final_message: the
    answer goes on with the last message. add_generation_prompt: None: unless it does.
    messages_name: how the dialect at hand spells messages, for error texts.
    """

    messages: Sequence[Mapping[str, Any]]
    sampling: Sampling
    origin: Origin
    model: str | None = None
    variables: Mapping[str, Any] = {}
    tools: ToolWish = ToolWish()
    reasoning: ReasoningWish = ReasoningWish()
    continue_final_message: bool = False
    add_generation_prompt: bool | None = None
    messages_name: str = "messages"


class ChatUsage(Usage, frozen=True, kw_only=True):
    """Tokens of one call; reasoning_tokens: those of the completion that were not said."""

    reasoning_tokens: int


class ChatAnswer:
    """The answer to a chat that was understood; nothing runs before it is asked for."""

    def __init__(
        self, generation: Generation, form: AnswerFormat = PLAIN, tools: ToolWish | None = None
    ) -> None:
        self.origin = generation.origin
        self.choices = range(len(generation.choices))
        self.generation = generation
        self._readers = [_reader(choice, form, tools or ToolWish()) for choice in self.choices]
        self._telling = [Telling(reader) for reader in self._readers]

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Everything that is told, as it comes. Close the iterator to abort the rest.

        Raises ApiError as `Generation.pieces` does.
        """
        async with aclosing(self.generation.pieces()) as pieces:
            async for piece in pieces:
                tokens = len(self.generation.choices[piece.choice].token_ids)
                for event in self._telling[piece.choice].events(piece, tokens):
                    yield event
                if self._is_done(piece.choice):
                    self.generation.choices[piece.choice].cut()

    async def replies(self) -> list[Reply]:
        """Every choice whole."""
        replies = [Reply(choice) for choice in self.choices]
        async with aclosing(self.events()) as events:
            async for event in events:
                replies[event.choice].add(event)
        return replies

    def abort(self) -> None:
        """End what still runs; its choices finish with "abort"."""
        self.generation.abort()

    def usage(self) -> ChatUsage:
        """Tokens so far."""
        counts = msgspec.structs.asdict(self.generation.usage())
        return ChatUsage(**counts, reasoning_tokens=sum(t.reasoning_tokens for t in self._telling))

    def _is_done(self, choice: int) -> bool:
        reader = self._readers[choice]
        return isinstance(reader, FormatReader) and reader.done


def _reader(choice: int, form: AnswerFormat, tools: ToolWish) -> Reader:
    """What tells the meaning of a choice's text."""
    if form.tools or form.reasoning:
        return FormatReader(
            choice, form, parallel=tools.parallel, only_calls=tools.choice in FORCED
        )
    return PlainReader(choice)


async def prepare(service: Service, call: ChatCall) -> ChatAnswer:
    """Check everything and render the prompt. ApiError says what is wrong."""
    service.check_model(call.model)
    sampling = call.sampling
    check_sampling(sampling, service.info.vocab_size)
    names = check_tools(call.tools, service.formats, shown=service.texts.template_reads("tools"))
    prompt = await _render(service, call)
    sampling = await _with_grammar(service, call, names, prompt)
    limit = fit_max_tokens(sampling, len(prompt.ids), None, service.room)
    most = service.config.max_tokens_per_call
    check_volume(sampling.n, limit, sampling.max_tokens_name, most)
    form = _form_of(service, call, names, prompt)
    shown = service.tokenizer.special_ids(form.markers)
    writing = Writing(at_start=not call.continue_final_message, shown=shown)
    generation = Generation(service, call.origin, [prompt.ids], [limit], sampling, writing=writing)
    return ChatAnswer(generation, form, call.tools)


async def _with_grammar(
    service: Service, call: ChatCall, names: tuple[str, ...], prompt: ChatPrompt
) -> Sampling:
    """The settings with the grammar of the call or of its tools, behind thoughts where they are
    read. ApiError 400 for one that cannot be served."""
    grammars, reasoning, asked = service.grammars, service.formats.reasoning, call.sampling.grammar
    if not call.reasoning.separate:
        reasoning = ""
    wish = None
    if names:
        before = thoughts(reasoning, prompt.inside, speaks=False)
        wish = tool_wish(call.tools, service.formats.tools, asked, before)
        for schema in schema_wishes(call.tools) if wish else ():
            await grammars.check(schema)
    if wish is None and asked is not None:
        await grammars.check(asked)
        wish = behind_thoughts(asked, thoughts(reasoning, prompt.inside, speaks=True))
    return await grammars.settled(msgspec.structs.replace(call.sampling, grammar=wish))


def _form_of(
    service: Service, call: ChatCall, names: tuple[str, ...], prompt: ChatPrompt
) -> AnswerFormat:
    formats = service.formats
    return AnswerFormat(
        tools=formats.tools if names else "",
        names=names,
        reasoning=formats.reasoning if call.reasoning.separate else "",
        inside=prompt.inside,
        stream_thoughts=call.reasoning.stream,
    )


async def prompt_of(service: Service, call: ChatCall) -> tuple[int, ...]:
    """Token ids of the chat, up to where the assistant speaks. ApiError 400."""
    check_tools(call.tools, service.formats, shown=service.texts.template_reads("tools"))
    return (await _render(service, call)).ids


async def _render(service: Service, call: ChatCall) -> ChatPrompt:
    for name in _SET_BY_US:
        if name in call.variables:
            raise bad_request(f"chat_template_kwargs: {name!r} is set by the server", name)
    _check_continued(call)
    return await service.texts.chat(
        call.messages,
        call.variables,
        tools=call.tools.offered,
        continue_final_message=call.continue_final_message,
        add_generation_prompt=call.add_generation_prompt,
        param=call.messages_name,
    )


def _check_continued(call: ChatCall) -> None:
    """ApiError 400 where no message can be continued; the template may still refuse."""
    if not call.continue_final_message:
        return
    name = "continue_final_message"
    if call.add_generation_prompt:
        text = f"{name} and add_generation_prompt exclude each other; send one of them"
        raise bad_request(text, name)
    last = call.messages[-1] if call.messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        raise bad_request(f"{name} needs a last message of role 'assistant'", name)
