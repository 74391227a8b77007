"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.http.auth import caller_of
from anychip.http.stream import DONE, EventStream, TextEvents, event, json_answer
from anychip.server.chat_call import ChatAnswer, ChatCall, ReasoningWish, prepare
from anychip.server.chat_events import (
    ChatEvent,
    End,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from anychip.server.chat_tools import ToolWish, choice_of
from anychip.server.choice import ScoredToken
from anychip.server.logprobs import ChatLogprobs, PromptLogprobs, chat_logprobs, prompt_logprobs
from anychip.server.openai_protocol import (
    CHAT_NOT_YET,
    Chat,
    ChatChoice,
    ChatChunk,
    ChatRequest,
    ChunkChoice,
    Delta,
    FunctionPart,
    Message,
    MessageToolCall,
    ToolCallPart,
    Usage,
    check_stream_options,
    sampling_of,
    usage_of,
)
from anychip.server.origin import origin_of
from anychip.server.service import Service
from anychip.server.thinking import effort_variables
from anychip.server.validation import convert, read_object


async def chat_completions(request: Request) -> Response:
    """Answer a chat, whole or as a stream."""
    service: Service = request.app.state.service
    service.check_open()
    body = await read_object(request, service.config.max_request_bytes)
    asked = convert(body, ChatRequest, CHAT_NOT_YET)
    answer = await begin(service, asked, caller_of(request).tenant)
    told = _Telling(service, asked, answer)
    if asked.stream:
        return EventStream(told.events())
    return await json_answer(request, told.whole())


async def begin(service: Service, asked: ChatRequest, tenant: str | None) -> ChatAnswer:
    """The checked call, not yet submitted. ApiError 400."""
    check_stream_options(asked)
    call = ChatCall(
        model=asked.model,
        messages=asked.messages,
        sampling=sampling_of(asked),
        origin=origin_of(asked, tenant, "chatcmpl-"),
        variables={
            **effort_variables(service, asked.reasoning_effort, "reasoning_effort"),
            **(asked.chat_template_kwargs or {}),
        },
        tools=_tools(asked),
        reasoning=ReasoningWish(
            separate=asked.separate_reasoning is not False,
            stream=asked.stream_reasoning is not False,
        ),
        continue_final_message=bool(asked.continue_final_message),
        add_generation_prompt=asked.add_generation_prompt,
    )
    return await prepare(service, call)


def _tools(asked: ChatRequest) -> ToolWish:
    choice, name = choice_of(asked.tool_choice)
    parallel = asked.parallel_tool_calls is not False
    return ToolWish(tools=asked.tools or (), choice=choice, name=name, parallel=parallel)


class _Telling:
    """The answer in OpenAI's words."""

    def __init__(self, service: Service, asked: ChatRequest, answer: ChatAnswer) -> None:
        self._answer = answer
        self._model = service.model_name
        self._table = service.tokenizer.table
        self._scored = bool(asked.logprobs)
        self._scored_prompt = asked.prompt_logprobs is not None
        self._created = int(time.time())
        self._usage = bool(asked.stream_options and asked.stream_options.include_usage)
        self._texts: dict[int, TextEvents] = {}

    async def whole(self) -> Chat:
        """The answer in one piece."""
        replies = await self._answer.replies()
        return Chat(
            id=self._answer.origin.rid,
            created=self._created,
            model=self._model,
            choices=[_choice(reply, self._logprobs(reply.logprobs)) for reply in replies],
            usage=usage_of(self._answer.usage()),
            prompt_logprobs=self._of_prompt(),
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events: roles, texts, ends, usage, [DONE]."""
        begun = False
        async with aclosing(self._answer.events()) as told:
            async for one in told:
                if not begun:
                    begun = True
                    for choice in self._answer.choices:
                        yield self._chunk(choice, Delta(role="assistant", content=""))
                yield self._event(one)
        if self._usage:
            yield event(self._envelope([], usage_of(self._answer.usage())))
        yield DONE

    def _event(self, one: ChatEvent) -> bytes:
        if isinstance(one, End):
            end = ChunkChoice(
                index=one.choice,
                delta=Delta(),
                finish_reason=one.finish,
                matched_stop=one.matched,
            )
            return event(self._envelope([end]))
        if isinstance(one, TextDelta):
            if not self._scored:
                texts = self._texts.get(one.choice) or self._text_events(one.choice)
                return texts.event(one.text)
            return self._chunk(one.choice, _delta(one), self._logprobs(one.logprobs))
        return self._chunk(one.choice, _delta(one))

    def _text_events(self, index: int) -> TextEvents:
        """What writes the texts of a choice."""
        texts = TextEvents(lambda text: self._chunk(index, Delta(content=text)))
        self._texts[index] = texts
        return texts

    def _chunk(self, index: int, delta: Delta, logprobs: ChatLogprobs | None = None) -> bytes:
        return event(self._envelope([ChunkChoice(index=index, delta=delta, logprobs=logprobs)]))

    def _of_prompt(self) -> PromptLogprobs | msgspec.UnsetType:
        if not self._scored_prompt:
            return msgspec.UNSET
        generation = self._answer.generation
        scores = generation.choices[0].prompt_logprobs
        return prompt_logprobs(generation.prompts[0], scores, self._table.piece)

    def _logprobs(self, scored: Sequence[ScoredToken]) -> ChatLogprobs | None:
        return chat_logprobs(scored, self._table.piece) if self._scored else None

    def _envelope(
        self, choices: list[ChunkChoice], usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    ) -> ChatChunk:
        if usage is msgspec.UNSET and self._usage:
            usage = None  # OpenAI sends the field as null in all chunks but the last
        return ChatChunk(
            id=self._answer.origin.rid,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage,
        )


def _delta(one: TextDelta | ReasoningDelta | ToolCallStart | ToolCallArguments) -> Delta:
    if isinstance(one, TextDelta):
        return Delta(content=one.text)
    if isinstance(one, ReasoningDelta):
        return Delta(reasoning_content=one.text)
    if isinstance(one, ToolCallStart):
        begun = FunctionPart(name=one.name, arguments="")
        part = ToolCallPart(index=one.index, id=one.id, type="function", function=begun)
    else:
        part = ToolCallPart(index=one.index, function=FunctionPart(arguments=one.delta))
    return Delta(tool_calls=[part])


def _choice(reply: Reply, logprobs: ChatLogprobs | None) -> ChatChoice:
    calls = [
        MessageToolCall(id=call.id, function=FunctionPart(name=call.name, arguments=call.arguments))
        for call in reply.tool_calls
    ]
    message = Message(
        content=None if calls and not reply.text else reply.text,
        reasoning_content=reply.reasoning or msgspec.UNSET,
        tool_calls=calls or msgspec.UNSET,
    )
    return ChatChoice(
        index=reply.choice,
        message=message,
        finish_reason=reply.finish,
        matched_stop=reply.matched,
        logprobs=logprobs,
    )
