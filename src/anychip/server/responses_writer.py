"""Writes a response: from what an answer tells to items, typed events and the response object."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from anychip.http.errors import ApiError
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
from anychip.server.choice import ScoredToken
from anychip.server.logprobs import ContentLogprob
from anychip.server.openai_protocol import PromptDetails
from anychip.server.responses_events import (
    ArgumentsDelta,
    ArgumentsDone,
    Completed,
    Created,
    Failed,
    Incomplete,
    InProgress,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    PartAdded,
    PartDone,
    Queued,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseEvent,
)
from anychip.server.responses_protocol import (
    CallItem,
    IncompleteDetails,
    Item,
    MessageItem,
    OutputDetails,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseFailure,
    ResponseObject,
    ResponseUsage,
)

Events = Iterator[ResponseEvent]

_DELTAS: Mapping[type, type[ResponseEvent]] = {
    MessageItem: OutputTextDelta,
    ReasoningItem: ReasoningTextDelta,
    CallItem: ArgumentsDelta,
}
_STATUS = {"stop": "completed", "tool_calls": "completed", "abort": "cancelled"}
_LAST: Mapping[str, type[ResponseEvent]] = {"completed": Completed, "failed": Failed}


Scoring = Callable[[Sequence[ScoredToken]], list[ContentLogprob]]
"""Tells tokens' logprobs in OpenAI's words."""


class Writer:
    """One response while it grows. blank: the response before anything happened.

    scoring: None where logprobs are not wanted.
    """

    def __init__(self, blank: ResponseObject, scoring: Scoring | None = None) -> None:
        self.response = blank
        self._scoring = scoring
        self._scored: list[ContentLogprob] = []
        self._sequence = 0
        self._item: Item | None = None
        self._written: list[str] = []

    def begin(self) -> Events:
        """The first event."""
        yield self._event(Created, response=self.response)

    def queue(self) -> Events:
        """It waits for its first token."""
        self._change(status="queued")
        yield self._event(Queued, response=self.response)

    def work(self) -> Events:
        """The first token is there."""
        self._change(status="in_progress")
        yield self._event(InProgress, response=self.response)

    def take(self, told: ChatEvent) -> Events:
        """What the next event of the answer adds. Its end closes the last item alone."""
        if isinstance(told, End):
            yield from self._close(whole=told.finish in ("stop", "tool_calls"))
            return
        if isinstance(told, TextDelta) and not (told.text or told.logprobs):
            return
        if not self._goes_on(told):
            yield from self._close(whole=True)
            yield from self._open(told)
        yield from self._add(told)

    def finish(self, finish: str, usage: ChatUsage) -> Events:
        """The last event: how it ended, and what it cost."""
        yield from self._close(whole=False)
        status = _STATUS.get(finish, "incomplete")
        short = IncompleteDetails("max_output_tokens") if status == "incomplete" else None
        done = int(time.time()) if status == "completed" else None
        self._change(
            status=status, usage=_usage(usage), incomplete_details=short, completed_at=done
        )
        yield self._event(_LAST.get(status, Incomplete), response=self.response)

    def fail(self, error: ApiError, usage: ChatUsage) -> Events:
        """The last event, where the engine did not do it."""
        yield from self._close(whole=False)
        codes = {400: "invalid_prompt", 503: "rate_limit_exceeded"}
        code = codes.get(error.status, "server_error")
        failure = ResponseFailure(code=code, message=error.body.message)
        self._change(status="failed", error=failure, usage=_usage(usage))
        yield self._event(Failed, response=self.response)

    def _event(self, kind: type[ResponseEvent], **fields: Any) -> ResponseEvent:
        event = kind(sequence_number=self._sequence, **fields)
        self._sequence += 1
        return event

    def _change(self, **fields: Any) -> None:
        self.response = msgspec.structs.replace(self.response, **fields)

    @property
    def _place(self) -> int:
        return len(self.response.output)

    def _goes_on(self, told: Delta) -> bool:
        """Whether `told` belongs to the open item."""
        kinds = {TextDelta: MessageItem, ReasoningDelta: ReasoningItem, ToolCallArguments: CallItem}
        return self._item is not None and kinds.get(type(told)) is type(self._item)

    def _open(self, told: Delta) -> Events:
        item: Item
        if isinstance(told, TextDelta):
            item = MessageItem(id=f"msg_{uuid.uuid4().hex}", status="in_progress")
        elif isinstance(told, ReasoningDelta):
            item = ReasoningItem(id=f"rs_{uuid.uuid4().hex}", status="in_progress")
        elif isinstance(told, ToolCallStart):
            item = CallItem(
                id=f"fc_{uuid.uuid4().hex}", status="in_progress", call_id=told.id, name=told.name
            )
        else:
            raise TypeError(f"arguments of call {told.index}, which has not begun")
        self._item, self._written, self._scored = item, [], []
        yield self._event(ItemAdded, output_index=self._place, item=item)
        if not isinstance(item, CallItem):
            part = OutputText(text="") if isinstance(item, MessageItem) else ReasoningText(text="")
            yield self._event(PartAdded, **self._where(item), part=part)

    def _where(self, item: Item) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": self._place}

    def _add(self, told: Delta) -> Events:
        item = self._item
        if item is None or isinstance(told, ToolCallStart):
            return
        text = told.delta if isinstance(told, ToolCallArguments) else told.text
        self._written.append(text)
        more = self._scores(told)
        yield self._event(_DELTAS[type(item)], **self._where(item), delta=text, **more)

    def _scores(self, told: Delta) -> dict[str, Any]:
        """What an event adds, where logprobs are wanted."""
        if self._scoring is None or not isinstance(told, TextDelta):
            return {}
        scored = self._scoring(told.logprobs)
        self._scored += scored
        return {"logprobs": scored}

    def _close(self, *, whole: bool) -> Events:
        """End the open item, if there is one. whole: nothing of it is missing."""
        item, text = self._item, "".join(self._written)
        if item is None:
            return
        self._item, self._written = None, []
        where, status = self._where(item), "completed" if whole else "incomplete"
        if isinstance(item, CallItem):
            done: Item = msgspec.structs.replace(item, status=status, arguments=text)
            yield self._event(ArgumentsDone, **where, arguments=text, name=item.name)
        else:
            if isinstance(item, MessageItem):
                scored = self._scored
                part: OutputText | ReasoningText = OutputText(text=text, logprobs=scored)
                yield self._event(OutputTextDone, **where, text=text, logprobs=scored)
            else:
                part = ReasoningText(text=text)
                yield self._event(ReasoningTextDone, **where, text=text)
            done = msgspec.structs.replace(item, status=status, content=[part])
            yield self._event(PartDone, **where, part=part)
        yield self._event(ItemDone, output_index=self._place, item=done)
        self._change(output=[*self.response.output, done])


def _usage(usage: ChatUsage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_tokens_details=PromptDetails(usage.cached_tokens),
        output_tokens_details=OutputDetails(usage.reasoning_tokens),
    )
