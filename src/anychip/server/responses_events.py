"""The typed events of a streamed response, and the order of those of one item."""

from __future__ import annotations

import msgspec

from anychip.server.logprobs import ContentLogprob
from anychip.server.responses_protocol import Item, Part, ResponseObject


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One event. sequence_number: counts those of a response from 0."""

    sequence_number: int

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.__struct_config__.tag)


class Created(ResponseEvent, frozen=True, tag="response.created"):
    """The first of all."""

    response: ResponseObject


class Queued(ResponseEvent, frozen=True, tag="response.queued"):
    """Of background responses: it waits for its first token."""

    response: ResponseObject


class InProgress(ResponseEvent, frozen=True, tag="response.in_progress"):
    """The first token is there."""

    response: ResponseObject


class Completed(ResponseEvent, frozen=True, tag="response.completed"):
    """The last event, where all went well."""

    response: ResponseObject


class Incomplete(ResponseEvent, frozen=True, tag="response.incomplete"):
    """The last event, where tokens ran out or somebody cancelled."""

    response: ResponseObject


class Failed(ResponseEvent, frozen=True, tag="response.failed"):
    """The last event, where the engine failed."""

    response: ResponseObject


class ItemAdded(ResponseEvent, frozen=True, tag="response.output_item.added"):
    """An item begins."""

    output_index: int
    item: Item


class ItemDone(ResponseEvent, frozen=True, tag="response.output_item.done"):
    """An item is whole."""

    output_index: int
    item: Item


class ItemEvent(ResponseEvent, frozen=True, kw_only=True):
    """Of one item."""

    item_id: str
    output_index: int


class PartAdded(ItemEvent, frozen=True, tag="response.content_part.added"):
    """The item's text begins."""

    part: Part
    content_index: int = 0


class PartDone(ItemEvent, frozen=True, tag="response.content_part.done"):
    """The item's text is whole."""

    part: Part
    content_index: int = 0


class OutputTextDelta(ItemEvent, frozen=True, tag="response.output_text.delta"):
    """More of what is said."""

    delta: str
    content_index: int = 0
    logprobs: list[ContentLogprob] = []


class OutputTextDone(ItemEvent, frozen=True, tag="response.output_text.done"):
    """All that was said."""

    text: str
    content_index: int = 0
    logprobs: list[ContentLogprob] = []


class ReasoningTextDelta(ItemEvent, frozen=True, tag="response.reasoning_text.delta"):
    """More of what is thought."""

    delta: str
    content_index: int = 0


class ReasoningTextDone(ItemEvent, frozen=True, tag="response.reasoning_text.done"):
    """All that was thought."""

    text: str
    content_index: int = 0


class ArgumentsDelta(ItemEvent, frozen=True, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(ItemEvent, frozen=True, tag="response.function_call_arguments.done"):
    """All of a call's arguments."""

    arguments: str
    name: str


EVENTS: tuple[type[ResponseEvent], ...] = (
    Created,
    Queued,
    InProgress,
    ItemAdded,
    PartAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    ArgumentsDelta,
    ArgumentsDone,
    PartDone,
    ItemDone,
    Completed,
    Incomplete,
    Failed,
)
