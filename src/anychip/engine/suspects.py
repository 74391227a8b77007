"""Which requests ran when the engine died: one that was there twice is not taken a third time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable

import msgspec

from anychip.request import Request
from anychip.schedule.refusal import RequestRefused

CRASHES = 2
"""Deaths of the engine that a request may be present in before it is refused."""


class RequestSuspected(RequestRefused):
    """The request was running in every one of several deaths of the engine."""


class Suspects:
    """Requests of the last deaths, known by what they ask for: an id is never used twice.

    A death is forgotten after `window_s` seconds, and a request's once it has finished well.
    """

    def __init__(self, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s, self._clock = window_s, clock
        self._deaths: dict[bytes, list[float]] = {}

    def died(self, present: Iterable[Request]) -> None:
        """The engine died while these requests ran or waited."""
        self._forget()
        for mark in {_mark(request) for request in present}:
            self._deaths.setdefault(mark, []).append(self._clock())

    def finished(self, request: Request) -> None:
        """A request went through: it is not what kills the engine."""
        if self._deaths:
            self._deaths.pop(_mark(request), None)

    def check(self, request: Request) -> None:
        """RequestSuspected where the request was present in too many deaths."""
        if not self._deaths:
            return
        self._forget()
        deaths = self._deaths.get(_mark(request), ())
        if len(deaths) >= CRASHES:
            left_s = self._window_s - (self._clock() - deaths[-CRASHES])
            raise RequestSuspected(
                f"this request was present in {len(deaths)} crashes of the engine; it is refused"
                f" for the next {left_s:.0f} s. Change the prompt or the sampling settings"
            )

    def _forget(self) -> None:
        oldest = self._clock() - self._window_s
        kept = {mark: [at for at in deaths if at > oldest] for mark, deaths in self._deaths.items()}
        self._deaths = {mark: deaths for mark, deaths in kept.items() if deaths}


def _mark(request: Request) -> bytes:
    """What the engine computes from, without what differs when a client asks again."""
    params = msgspec.structs.replace(request.params, seed=0, draw=0)
    asked = msgspec.msgpack.encode((request.prompt, params, request.namespace))
    return hashlib.blake2b(asked, digest_size=16).digest()
