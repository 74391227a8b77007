"""Bodies of /v1/responses: fields as in OpenAI's API reference, extensions as in chats."""

from __future__ import annotations

from typing import Any

import msgspec

from anychip.server.logprobs import ContentLogprob
from anychip.server.openai_protocol import NotYet, PromptDetails, SamplingFields


class ResponsesRequest(SamplingFields, frozen=True, kw_only=True):
    """Body of POST /v1/responses. Null is the default for every field but `input`.

    input: a text, or items. include: message.output_text.logprobs tells each token's, and
    top_logprobs so many likeliest beside it. chat_template_kwargs: variables for the template.
    """

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


RESPONSES_NOT_YET: NotYet = {
    "context_management": ([],),
    "conversation": (),
    "max_tool_calls": (),
    "moderation": (),
    "prompt": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
    "truncation": ("disabled",),
}


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """Text of a message."""

    text: str
    annotations: list[Any] = []
    logprobs: list[ContentLogprob] = []


class ReasoningText(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"
):
    """Text of a reasoning item."""

    text: str


Part = OutputText | ReasoningText


class MessageItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the assistant says. status: in_progress, completed or incomplete, as of all items."""

    id: str
    status: str
    content: list[OutputText] = []
    role: str = "assistant"


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thinks before it speaks."""

    id: str
    status: str
    content: list[ReasoningText] = []
    summary: list[Any] = []


class CallItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a function. arguments: a JSON text."""

    id: str
    status: str
    call_id: str
    name: str
    arguments: str = ""


Item = MessageItem | ReasoningItem | CallItem


class OutputDetails(msgspec.Struct, frozen=True):
    """reasoning_tokens: those of the output that were thought and not said."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: PromptDetails
    output_tokens_details: OutputDetails


class ResponseFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response failed. code: one of OpenAI's."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """reason: max_output_tokens."""

    reason: str


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response. status: queued, in_progress, completed, incomplete, cancelled or failed.

    Times are Unix seconds. What the request did not set has its default.
    """

    id: str
    created_at: int
    model: str
    status: str
    output: list[Item]
    object: str = "response"
    completed_at: int | None = None
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    background: bool = False
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: dict[str, Any] = {}
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: str = "disabled"


class ResponseDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of DELETE /v1/responses/{id}."""

    id: str
    object: str = "response"
    deleted: bool = True
