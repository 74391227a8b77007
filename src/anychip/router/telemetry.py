"""What the router's call path tells, and to whom: metrics and spans listen, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from .asking import Ask
from .choosing import Choice

if TYPE_CHECKING:
    from anychip.http.call_record import CallRecord

RawHeaders = list[tuple[bytes, bytes]]

TryError = Literal["connect", "timeout", "broken", "refused", "cut", "left"]
"""How a try failed. connect: no connection; timeout: no answer in time; broken: what came is no
HTTP; refused: the worker said 503 or 429 and had not begun; cut: it ended within its answer;
left: the client did."""

State = Literal["starting", "ready", "sick", "draining", "gone"]
STATES: tuple[State, ...] = ("starting", "ready", "sick", "draining", "gone")


class WorkerView(NamedTuple):
    """A worker as the metrics show it, asked for whenever they are read."""

    name: str
    state: State
    calls: int
    tokens: int
    window: int | None
    chip: str | None = None


class CallWatch(Protocol):
    """Is told of one call that is passed on. Never raises, never waits."""

    def tried(self, attempt: int, choice: Choice) -> None:
        """The call goes to this worker now. attempt: 0, 1 ..."""

    def headers_for(self, attempt: int, given: RawHeaders) -> RawHeaders:
        """Headers of the try: `given`, with the trace context that the worker is to go on from.

        Call it after `tried`. Without traces they are `given`, so the client's own context
        is passed on.
        """

    def first_byte(self) -> None:
        """The worker's answer has begun."""

    def try_ended(self, worker: str, status: int | None, error: TryError | None) -> None:
        """The try is over. status: None where no answer began."""

    def fell_back(self, rule: str) -> None:
        """None of the rule's workers could be asked, and --rule-fallback lets others."""

    def ended(self, status: int | None) -> None:
        """The call is over. status: what the client was told; None: nothing."""


class TelemetryHub(Protocol):
    """What is told of the router. Belongs to one event loop."""

    def begun(self, record: CallRecord, route: str, ask: Ask) -> CallWatch:
        """A call that is to be passed on was understood. route: its path's pattern."""

    def breaker_opened(self, worker: str) -> None:
        """It failed too often in a row, and is sick now."""

    def follow(
        self, workers: Callable[[], Sequence[WorkerView]], chip_of: Callable[[str], str | None]
    ) -> None:
        """Where the metrics ask for the workers, and for the chip of one that is called so."""
