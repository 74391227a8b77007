"""Writes a message: from what an answer tells to blocks, events and the message itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from anychip.server.chat_call import ChatUsage
from anychip.server.chat_events import (
    ChatEvent,
    Delta,
    End,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from anychip.server.messages_protocol import (
    Block,
    BlockDelta,
    BlockPart,
    BlockStart,
    BlockStop,
    InputPart,
    MessageDelta,
    MessageEvent,
    MessageObject,
    MessageStart,
    MessageStop,
    MessageUsage,
    Ping,
    Stopped,
    TextBlock,
    TextPart,
    ThinkingBlock,
    ThinkingPart,
    ToolUseBlock,
)

Events = Iterator[MessageEvent]

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "abort": "abort"}


class MessageWriter:
    """One message while it grows."""

    def __init__(self, name: str, model: str) -> None:
        self._blocks: list[Block] = []
        self._block: Block | None = None
        self._written: list[str] = []
        self._end = End(choice=0, finish="abort")
        self._name = name
        self._model = model

    def begin(self, usage: ChatUsage) -> Events:
        """The first events."""
        empty = MessageObject(
            id=self._name, model=self._model, content=[], usage=usage_of(usage, 0)
        )
        yield MessageStart(empty)
        yield Ping()

    def take(self, told: ChatEvent) -> Events:
        """What the next event of the answer adds. Its end closes the last block alone."""
        if isinstance(told, End):
            self._end = told
            yield from self._close()
            return
        if isinstance(told, TextDelta) and not told.text:
            return
        if not self._goes_on(told):
            yield from self._close()
            self._block = _block(told)
            yield BlockStart(index=len(self._blocks), content_block=self._block)
        if not isinstance(told, ToolCallStart):
            self._written.append(told.delta if isinstance(told, ToolCallArguments) else told.text)
            yield BlockDelta(index=len(self._blocks), delta=_part(told))

    def finish(self, usage: ChatUsage) -> Events:
        """The last events."""
        reason, matched = self._stopped()
        yield MessageDelta(
            delta=Stopped(stop_reason=reason, stop_sequence=matched), usage=usage_of(usage)
        )
        yield MessageStop()

    def message(self, usage: ChatUsage) -> MessageObject:
        """The whole message."""
        reason, matched = self._stopped()
        return MessageObject(
            id=self._name,
            model=self._model,
            content=self._blocks,
            usage=usage_of(usage),
            stop_reason=reason,
            stop_sequence=matched,
        )

    def _stopped(self) -> tuple[str, str | None]:
        """Why it stopped, and the stop sequence that it met."""
        if self._end.finish == "stop" and isinstance(self._end.matched, str):
            return "stop_sequence", self._end.matched
        return _REASONS.get(self._end.finish, "end_turn"), None

    def _goes_on(self, told: Delta) -> bool:
        """Whether `told` belongs to the open block."""
        kinds = {
            TextDelta: TextBlock,
            ReasoningDelta: ThinkingBlock,
            ToolCallArguments: ToolUseBlock,
        }
        return self._block is not None and kinds.get(type(told)) is type(self._block)

    def _close(self) -> Events:
        """End the open block, if there is one."""
        block, text = self._block, "".join(self._written)
        if block is None:
            return
        yield BlockStop(index=len(self._blocks))
        self._block, self._written = None, []
        self._blocks.append(_filled(block, text))


def usage_of(usage: ChatUsage, output: int | None = None) -> MessageUsage:
    """Anthropic's form of a call's counts. output: tokens told as generated; all by default."""
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens if output is None else output,
    )


def _block(told: Delta) -> Block:
    """The empty block that begins with `told`."""
    if isinstance(told, TextDelta):
        return TextBlock(text="")
    if isinstance(told, ReasoningDelta):
        return ThinkingBlock(thinking="")
    if isinstance(told, ToolCallStart):
        return ToolUseBlock(id=told.id, name=told.name)
    raise TypeError(f"arguments of call {told.index}, which has not begun")


def _part(told: TextDelta | ReasoningDelta | ToolCallArguments) -> BlockPart:
    if isinstance(told, TextDelta):
        return TextPart(told.text)
    if isinstance(told, ReasoningDelta):
        return ThinkingPart(told.text)
    return InputPart(told.delta)


def _filled(block: Block, text: str) -> Block:
    if isinstance(block, TextBlock):
        return TextBlock(text=text)
    if isinstance(block, ThinkingBlock):
        return ThinkingBlock(thinking=text)
    return msgspec.structs.replace(block, input=_input(text))


def _input(text: str) -> dict[str, Any]:
    """A call's input; empty where it was cut short and is no JSON."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
