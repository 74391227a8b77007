"""A call passed on: to a worker, to another where that surely did not begin it, and back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from anychip.http.call_record import CallRecord
from anychip.http.errors import ApiError, unavailable
from anychip.http.event_edge import EventEdge, id_in
from anychip.http.relay import Answer, BadGateway, BrokenOff, Headers, Passed
from anychip.http.stream import ClientGone, until_gone

from .asking import Ask
from .choosing import Choice
from .desk import Desk
from .holders import Owned
from .picking import RETRY_S
from .telemetry import CallWatch, TryError

log = logging.getLogger("anychip.router")

MOST_HELD = 16 << 20
"""Bytes of an answer in one piece that are held until it is whole, so that one that breaks off can
be told from one that is there. The rest of a longer one passes as it comes."""
_BUSY = (429, 503)
"""Answers by which a worker says that it has not begun, and has no room."""
_OURS = frozenset({b"date", b"server", b"x-request-id", b"traceresponse"})
"""Headers of an answer that are the router's own."""


@dataclass(frozen=True, kw_only=True)
class RoutedCall:
    """What is passed on. route: pattern of its path. owner: tenant of the caller.

    only: the one worker that may answer; None: whoever is chosen. remembers: the answer's id names
    something that its worker keeps.
    """

    route: str
    ask: Ask
    sent: Passed
    owner: str | None = None
    only: str | None = None
    remembers: bool = False
    generates: bool = True


@dataclass
class _Try:
    """How one went. status: None until an answer began. error: its failure, in a word and in many.

    begun: the client has got something.
    """

    worker: str
    status: int | None = None
    error: TryError | None = None
    text: str = ""
    begun: bool = False
    owned: list[Owned] = field(default_factory=list)


class Routed(Response):
    """The answer to a routed call, as a Starlette response."""

    def __init__(self, desk: Desk, call: RoutedCall, record: CallRecord) -> None:
        super().__init__()
        self._desk, self._call, self._record = desk, call, record
        self._watch: CallWatch = desk.hub.begun(record, call.route, call.ask)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or stop where the client leaves. Raises ApiError before anything was sent."""
        status: int | None = None

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with suppress(ClientGone), self._desk.alive():
                await until_gone(receive, self._answer(noting))
        except ApiError as error:
            status = error.status
            raise
        finally:
            self._watch.ended(status)

    async def _answer(self, send: Send) -> None:
        """One worker after the other, until one has answered or none is left."""
        tried: list[str] = []
        while True:
            names = self._names(tried)
            choice = self._choice(names)
            last = len(tried) >= self._desk.retries or len(names) < 2
            done = await self._try(choice, len(tried), send, last=last)
            if done:
                return
            tried.append(choice.name)

    def _names(self, tried: list[str]) -> tuple[str, ...]:
        """Who may be asked now. Where all others went away meanwhile, the last is asked again."""
        if self._call.only is not None:
            return (self._desk.picker.holder(self._call.only).name,)
        found = self._desk.picker.candidates(self._call.ask, tried)
        if found.fell_back and not tried and found.rule is not None:
            self._watch.fell_back(found.rule.text)
        if found.names:
            return found.names
        return self._desk.picker.candidates(self._call.ask).names

    def _choice(self, names: tuple[str, ...]) -> Choice:
        if self._call.only is not None:
            return Choice(names[0], "only")
        return self._desk.picker.pick(self._call.ask, names)

    async def _try(self, choice: Choice, attempt: int, send: Send, *, last: bool) -> bool:
        """Whether the call is answered. Raises ApiError where it failed, and nothing was sent."""
        desk, call, one = self._desk, self._call, _Try(choice.name)
        self._record.worker, self._record.model = choice.name, call.ask.model
        self._watch.tried(attempt, choice)
        if call.generates:
            # Not when it answers: calls that come meanwhile may share the prompt's beginning.
            desk.picker.policy.served(call.ask, choice.name)
        line = desk.fleet.book.begun(choice.name, call.ask.prompt_tokens)
        self._own(one, call.ask.rid)
        try:
            return await self._asked(one, attempt, send, last=last)
        except asyncio.CancelledError:
            one.error = "left"
            raise
        finally:
            desk.fleet.book.ended(line)
            for owned in one.owned:
                desk.holders.ended(owned)
            self._watch.try_ended(one.worker, one.status, one.error)
            desk.fleet.took(one.worker, one.status, one.error, one.text)

    async def _asked(self, one: _Try, attempt: int, send: Send, *, last: bool) -> bool:
        try:
            async with self._desk.relay.ask(self._sent(one.worker, attempt)) as answer:
                one.status = answer.status
                if answer.status in _BUSY:
                    one.error = "refused"
                    if not last:
                        log.info("worker %s says %d: asking another", one.worker, answer.status)
                        return False
                await self._hand_on(one, answer, send)
                if answer.status >= 500:
                    one.text = f"it says {answer.status}"
                return True
        except BadGateway as failure:
            one.error, one.text = failure.kind, str(failure)
            if failure.kind == "connect" and not last:
                log.warning("worker %s: %s: asking another", one.worker, failure)
                return False
            raise _no_answer(one) from failure
        except BrokenOff as failure:
            one.error, one.text = "cut", str(failure)
            log.warning("worker %s: broken off: %s", one.worker, failure)
            if not one.begun:
                raise _no_answer(one) from failure
            return True

    def _sent(self, worker: str, attempt: int) -> Passed:
        """As it goes to this worker: its address and key, and the trace context of this try."""
        desk, sent = self._desk, self._call.sent
        headers = desk.headers_for_worker(sent.headers)
        headers.append((b"x-request-id", self._record.request_id.encode()))
        headers = self._watch.headers_for(attempt, headers)
        return sent._replace(base=desk.fleet.workers[worker].place.url, headers=headers)

    async def _hand_on(self, one: _Try, answer: Answer, send: Send) -> None:
        """The answer to the client. Raises BrokenOff where the client cannot be told of that."""
        plain = answer.header("Content-Encoding").lower() in ("", "identity")
        if plain and answer.header("Content-Type").startswith("text/event-stream"):
            await self._hand_on_events(one, answer, send)
        else:
            await self._hand_on_whole(one, answer, send)

    async def _hand_on_whole(self, one: _Try, answer: Answer, send: Send) -> None:
        held = bytearray()
        async for piece in answer.pieces():
            if not one.begun:
                held += piece
                if len(held) <= MOST_HELD:
                    continue
                self._begin(one)
                await send(_head(one, answer))
                piece = bytes(held)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if one.begun:
            await send({"type": "http.response.body", "body": b""})
            return
        self._begin(one)
        self._learn(one, bytes(held), over=True)
        await send(_head(one, answer))
        await send({"type": "http.response.body", "body": bytes(held)})

    async def _hand_on_events(self, one: _Try, answer: Answer, send: Send) -> None:
        edge = EventEdge()
        try:
            async for piece in answer.pieces():
                ready = edge.feed(piece)
                if ready:
                    await self._send_events(one, answer, ready, send)
            rest = edge.rest()
        except BrokenOff as failure:
            if not one.begun:
                raise
            one.error, one.text = "cut", str(failure)
            log.warning("worker %s: broken off: %s", one.worker, failure)
            error = _cut(one)
            error.note()
            rest = edge.failed(self._call.route, error)
        except asyncio.CancelledError:
            if one.begun and self._desk.draining:
                await self._cut_at_the_end(edge, send)
            raise
        if not one.begun or rest:
            await self._send_events(one, answer, rest, send)
        await send({"type": "http.response.body", "body": b""})

    async def _cut_at_the_end(self, edge: EventEdge, send: Send) -> None:
        """The router ends before the stream does: the client is told, as of any other error."""
        error = unavailable("the router is shutting down; ask again", "shutting_down")
        error.note()
        body = edge.failed(self._call.route, error)
        await send({"type": "http.response.body", "body": body})

    async def _send_events(self, one: _Try, answer: Answer, data: bytes, send: Send) -> None:
        if not one.begun:
            self._begin(one)
            self._learn(one, data, over=False)
            await send(_head(one, answer))
        await send({"type": "http.response.body", "body": data, "more_body": True})

    def _begin(self, one: _Try) -> None:
        one.begun = True
        self._watch.first_byte()

    def _learn(self, one: _Try, data: bytes, *, over: bool) -> None:
        """The id of the answer: to find its worker by. over: nothing of it runs any more."""
        if not self._call.generates or one.status is None or one.status >= 300:
            return
        name = id_in(data)
        if name is None:
            return
        if self._call.remembers:
            self._desk.holders.store(Owned(self._call.owner, name), one.worker)
        if not over:
            self._own(one, name)

    def _own(self, one: _Try, name: str | None) -> None:
        if name is not None:
            one.owned.append(Owned(self._call.owner, name))
            self._desk.holders.begun(one.owned[-1], one.worker)


def _head(one: _Try, answer: Answer) -> Message:
    headers: Headers = [pair for pair in answer.headers if pair[0].lower() not in _OURS]
    headers.append((b"x-anychip-worker", one.worker.encode()))
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


def _cut(one: _Try) -> ApiError:
    """What a stream's client is told."""
    return ApiError(
        502,
        f"worker {one.worker!r} broke off in the middle of its answer; ask again",
        type="server_error",
        code="worker_lost",
    )


def _no_answer(one: _Try) -> ApiError:
    """What the client is told before it has got anything."""
    who = f"worker {one.worker!r}"
    told = {
        "connect": (503, f"{who} cannot be reached; ask again", "worker_away"),
        "timeout": (504, f"{who} did not answer in time (--worker-timeout-s)", "worker_timeout"),
    }
    broken = (
        f"{who} broke off before its answer was there; it may have begun the call, which therefore"
        " went to no other: ask again"
    )
    status, text, code = told.get(one.error or "", (502, broken, "worker_lost"))
    return ApiError(status, text, type="server_error", code=code, retry_after=RETRY_S)
