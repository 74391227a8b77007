"""Requests whose grammar is being compiled: they come before the scheduler's queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, NamedTuple

from anychip.engine.grammars import EngineGrammars
from anychip.grammar.errors import GrammarError
from anychip.request import Failure, FinishReason, Request, StepOutput

if TYPE_CHECKING:
    from anychip.grammar.backend import Grammar

PATIENCE_S = 0.01
"""How long an engine with nothing else to do waits for a compile at a time."""


class _Waiting(NamedTuple):
    request: Request
    compiled: Future[Grammar]
    begun: float


class GrammarQueue:
    """In order of arrival; whoever is ready first leaves first.

    took: told the seconds from a request's arrival to the end of its compile.
    """

    def __init__(self, grammars: EngineGrammars, took: Callable[[float], None]) -> None:
        self._grammars, self._took = grammars, took
        self.waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.waiting

    def add(self, request: Request) -> None:
        """Begin to compile its grammar."""
        spec = request.params.grammar
        assert spec is not None, "the request has no grammar"
        self.waiting[request.id] = _Waiting(
            request, self._grammars.compile(spec), time.perf_counter()
        )

    def abort(self, request_id: str) -> StepOutput | None:
        """Take a request out; its last output, or None where it does not wait here."""
        found = self.waiting.pop(request_id, None)
        if found is None:
            return None
        found.compiled.cancel()
        return StepOutput(request_id=request_id, finish=FinishReason.ABORT)

    def wait(self) -> None:
        """Let a moment pass, or less where a compile ends."""
        wait([one.compiled for one in self.waiting.values()], PATIENCE_S, "FIRST_COMPLETED")

    def ready(self) -> Iterator[Request | StepOutput]:
        """Take out those whose compile is over: requests, or the last output of a failed one."""
        for name in [n for n, one in self.waiting.items() if one.compiled.done()]:
            request, compiled, begun = self.waiting.pop(name)
            self._took(time.perf_counter() - begun)
            error = compiled.exception()
            if error is None:
                yield request
            elif isinstance(error, GrammarError):
                yield failed(name, f"the grammar cannot be used: {error}")
            else:
                raise error


def failed(request_id: str, text: str, failure: Failure = Failure.INTERNAL) -> StepOutput:
    """The last output of a request that never reached the scheduler."""
    return StepOutput(request_id=request_id, finish=FinishReason.ERROR, error=text, failure=failure)
