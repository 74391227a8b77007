"""Bodies of /v1/messages: fields as in Anthropic's API reference, extensions as in chats."""

from __future__ import annotations

from typing import Any

import msgspec

from anychip.server.openai_protocol import NotYet
from anychip.server.origin import OriginFields


class CountRequest(OriginFields, frozen=True, kw_only=True):
    """Body of /v1/messages/count_tokens: what a prompt is made of, and where the call comes from.

    cache_control changes nothing: prefixes are always kept. chat_template_kwargs: variables for
    the template.
    """

    messages: list[dict[str, Any]]
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountRequest, frozen=True, kw_only=True):
    """Body of /v1/messages."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    metadata: dict[str, Any] | None = None


COUNT_NOT_YET: NotYet = {
    "container": (),
    "context_management": (),
    "diagnostics": (),
    "inference_geo": (),
    "mcp_servers": ([],),
    "output_format": (),
    "speed": ("standard",),
}
MESSAGES_NOT_YET: NotYet = {
    **COUNT_NOT_YET,
    "service_tier": ("auto", "standard_only"),
}


class TextBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """What the assistant says."""

    text: str
    citations: None = None


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What it thinks before it speaks. signature: empty; nobody checks it here."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call of a tool. input: empty where the call was cut short."""

    id: str
    name: str
    input: dict[str, Any] = {}


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one message. The prompt has input_tokens and cache_read_input_tokens together."""

    input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0


class MessageObject(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The assistant's message.

    stop_reason: end_turn, stop_sequence, max_tokens, tool_use or abort; null before its end.
    """

    id: str
    model: str
    content: list[Block]
    usage: MessageUsage
    role: str = "assistant"
    stop_reason: str | None = None
    stop_sequence: str | None = None


class TokenCount(msgspec.Struct, frozen=True):
    """Answer of /v1/messages/count_tokens: tokens of the whole prompt."""

    input_tokens: int


class MessageStart(msgspec.Struct, frozen=True, tag_field="type", tag="message_start"):
    """The first event: the message without its content."""

    message: MessageObject


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """Nothing new; the connection lives."""


class BlockStart(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="content_block_start"
):
    """A block begins, empty. index: counts the blocks of the message from 0."""

    index: int
    content_block: Block


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    """More of a text block."""

    text: str


class ThinkingPart(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    """More of a thinking block."""

    thinking: str


class InputPart(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    """More of a call's input: a part of a JSON text."""

    partial_json: str


BlockPart = TextPart | ThinkingPart | InputPart


class BlockDelta(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="content_block_delta"
):
    """A block grows."""

    index: int
    delta: BlockPart


class BlockStop(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="content_block_stop"
):
    """A block is whole."""

    index: int


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message_delta"
):
    """The message's end and what it cost in all."""

    delta: Stopped
    usage: MessageUsage


class MessageStop(msgspec.Struct, frozen=True, tag_field="type", tag="message_stop"):
    """The last event."""


MessageEvent = (
    MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop
)
EVENTS: tuple[type[msgspec.Struct], ...] = (
    MessageStart,
    Ping,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
)
