"""One response from its first event to its last, for its client or in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from anychip.http.errors import ApiError, server_error
from anychip.http.stream import named_event
from anychip.server.chat_call import ChatAnswer
from anychip.server.chat_events import Reply
from anychip.server.responses_events import ResponseEvent
from anychip.server.responses_protocol import ResponseObject
from anychip.server.responses_store import ResponseStore
from anychip.server.responses_writer import Scoring, Writer

log = logging.getLogger("anychip.server")


class ResponseRun:
    """messages: the conversation up to this response, without its instructions; this response is
    added to it at the end.
    """

    def __init__(
        self,
        store: ResponseStore[ResponseRun],
        answer: ChatAnswer,
        blank: ResponseObject,
        messages: list[dict[str, Any]],
        scoring: Scoring | None = None,
    ) -> None:
        self.origin = answer.origin
        self.messages = messages
        self.running = True
        self.events: list[bytes] | None = None
        """Of a background response that is streamed: all events so far."""
        self._store = store
        self._answer: ChatAnswer | None = answer
        self._writer = Writer(blank, scoring)
        self._reply = Reply(0)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def response(self) -> ResponseObject:
        """The response as it is now."""
        return self._writer.response

    def size(self) -> int:
        """Bytes of the response, its conversation and its events."""
        size = len(msgspec.json.encode((self.response, self.messages)))
        return size + sum(len(event) for event in self.events or ())

    async def whole(self) -> ResponseObject:
        """The response when it is complete."""
        async with aclosing(self._told()) as events:
            async for _ in events:
                pass
        return self.response

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Its events. An ApiError before the first is raised; a later one is the last event."""
        begun = False
        try:
            async with aclosing(self._told()) as events:
                async for event in events:
                    begun = True
                    yield _encode(event)
        except ApiError as error:
            if not begun:
                raise
            for event in self._fail(error):
                yield _encode(event)

    def begin(self, *, streamed: bool) -> None:
        """Run it in the background."""
        self.events = [] if streamed else None
        self._tell(*self._writer.begin(), *self._writer.queue())
        self._store.running += 1
        self._store.put(self.origin.tenant, self.origin.rid, self)
        self._task = asyncio.create_task(self._work())
        self._task.add_done_callback(self._leave)

    async def cancel(self) -> None:
        """End it if it runs in the background."""
        if self._task is not None and self.running:
            self._task.cancel()
            await asyncio.wait({self._task})
            if self.running:  # cancelled before its first step
                self._tell(*self._finish("abort"))

    async def follow(self, after: int) -> AsyncGenerator[bytes, None]:
        """The events of a background response after the one with that number, as they come."""
        place = after + 1
        while True:
            news = self._news
            for event in (self.events or [])[place:]:
                place += 1
                yield event
            if not self.running:
                return
            await news.wait()

    async def _work(self) -> None:
        """The background's task; whoever asks for the response is told how it ended."""
        try:
            async with aclosing(self._told(begun=True)) as events:
                async for event in events:
                    self._tell(event)
        except asyncio.CancelledError:
            self._tell(*self._finish("abort"))
        except ApiError as error:
            self._tell(*self._fail(error))
        except Exception as error:
            log.exception("response %s failed", self.origin.name)
            self._tell(*self._fail(server_error(f"internal error ({type(error).__name__})")))

    def _leave(self, _: asyncio.Task[None]) -> None:
        self._store.running -= 1

    async def _told(self, *, begun: bool = False) -> AsyncGenerator[ResponseEvent, None]:
        """The events as they come. begun: the first one was told already."""
        working = False
        async with aclosing(self._work_left().events()) as events:
            async for told in events:
                if not working:
                    working = True
                    for event in () if begun else self._writer.begin():
                        yield event
                    for event in self._writer.work():
                        yield event
                self._reply.add(told)
                for event in self._writer.take(told):
                    yield event
        for event in self._finish(self._reply.finish or "abort"):
            yield event

    def _finish(self, finish: str) -> list[ResponseEvent]:
        """The last events. The response is in the store before its client can ask for it."""
        events = list(self._writer.finish(finish, self._work_left().usage()))
        self.messages = [*self.messages, assistant_message(self._reply)]
        self._close()
        return events

    def _fail(self, error: ApiError) -> list[ResponseEvent]:
        error.note()
        events = list(self._writer.fail(error, self._work_left().usage()))
        self._close()
        return events

    def _work_left(self) -> ChatAnswer:
        if self._answer is None:
            raise RuntimeError(f"the response {self.origin.name} is complete")
        return self._answer

    def _close(self) -> None:
        """Let go of what only a growing response needs, and keep the rest in the store."""
        self.running, self._answer, self._reply = False, None, Reply(0)
        tenant, name = self.origin.tenant, self.origin.rid
        if self.response.store and (self._task is None or self._store.has(tenant, name)):
            self._store.put(tenant, name, self)

    def _tell(self, *events: ResponseEvent) -> None:
        """Let followers have the events."""
        if self.events is not None:
            self.events.extend(map(_encode, events))
        self._news.set()
        self._news = asyncio.Event()


def assistant_message(reply: Reply) -> dict[str, Any]:
    """What the assistant did, as a message of the next turn's prompt."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.tool_calls
        ]
    return message


def _encode(event: ResponseEvent) -> bytes:
    return named_event(event.kind, event)
