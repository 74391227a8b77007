"""One API call as sequences of the engine: fan-out for n, text out, stop strings, usage."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from anychip.engine.client import EngineClient, EngineUnavailable
from anychip.engine.suspects import RequestSuspected
from anychip.http.call_record import current_call
from anychip.http.errors import ApiError, bad_request, server_error, timed_out, unavailable
from anychip.request import (
    NO_LOGPROBS,
    Failure,
    FinishReason,
    Request,
    SamplingParams,
    StepOutput,
)
from anychip.schedule.refusal import QueueFull, RequestRefused
from anychip.server.choice import PLAINLY, Choice, Piece, Writing
from anychip.server.origin import Origin
from anychip.server.sampling import Sampling, of_draw, sampling_params
from anychip.server.service import Service
from anychip.server.timing import Timing
from anychip.text.stop import stop_patterns

log = logging.getLogger("anychip.server")

Pieces = tuple[Piece, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call. A prompt counts once, however many choices continue it."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Generation:
    """The sequences of one call, prompts x n, choice = prompt * n + draw.

    Registered in `service.live` under its id while it runs, on every way out removed.
    """

    def __init__(
        self,
        service: Service,
        origin: Origin,
        prompts: Sequence[tuple[int, ...]],
        max_tokens: Sequence[int],
        sampling: Sampling,
        *,
        writing: Writing = PLAINLY,
    ) -> None:
        self.origin = origin
        self.prompts = prompts
        self.n = sampling.n
        self.started = time.monotonic()
        self.first_token: float | None = None
        self.ended: float | None = None
        self.submitted = False
        self._service = service
        self.sampling = sampling
        self._client: EngineClient = service.client
        seed = service.next_seed() if sampling.seed is None else sampling.seed
        self._record = service.recorder.call(origin, sampling, seed)
        self._scores_prompt = sampling.prompt_logprobs != NO_LOGPROBS
        writing = msgspec.structs.replace(writing, patterns=stop_patterns(sampling.stop_regex))
        self.choices: list[Choice] = []
        self.requests: list[Request] = []
        record = current_call()
        self._traced = record is not None and record.traced
        for prompt, limit in zip(prompts, max_tokens, strict=True):
            params = sampling_params(sampling, limit, seed, service.tokenizer)
            for draw in range(sampling.n):
                self._add(prompt, of_draw(params, draw), writing)
        self._by_id = {request.id: i for i, request in enumerate(self.requests)}
        if record is not None:
            record.generates(self, service.model_name)

    def _add(self, prompt: tuple[int, ...], params: SamplingParams, writing: Writing) -> None:
        service = self._service
        choice = Choice(
            len(self.choices),
            service.tokenizer,
            self.sampling,
            interval=service.config.stream_interval,
            writing=writing,
        )
        self.choices.append(choice)
        request = Request(
            id=service.next_engine_id(self.origin.rid),
            prompt=prompt,
            params=params,
            namespace=self.origin.namespace,
            priority=self.origin.priority,
            traced=self._traced,
        )
        self.requests.append(request)

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Everything that is generated, as it comes. Close the iterator to abort the rest.

        Raises ApiError: 400 refused, 503 no engine, queue full or waited for too long, 504 ran for
        too long, 500 it failed on the way.
        """
        with self._service.registered(self):
            self._service.request_log.begun(self.origin, self.prompts, self.sampling)
            timing = self._timing()
            held: Pieces = ()
            self.submitted = True
            try:
                with self._client.reading(*self.requests) as outputs:
                    while outputs.open:
                        piece = self._take(await outputs.next(), timing)
                        ready: Pieces = () if piece is None else (piece,)
                        if self._scores_prompt:
                            ready, held = self._sorted((*held, *ready))
                        for one in ready:
                            yield one
            except (EngineUnavailable, RequestRefused) as error:
                timing.refuse()
                raise self._noted(_refused(error, self._service.retry_after)) from error
            finally:
                timing.close()
                self.ended = time.monotonic()
                self._log_end()
                self._take_down(*self.choices, over=True)

    def _timing(self) -> Timing:
        service = self._service
        lengths = [len(self.prompts[choice.index // self.n]) for choice in self.choices]
        return Timing(service.metrics.requests, service.turnover, self.started, lengths)

    def _sorted(self, pieces: Pieces) -> tuple[Pieces, Pieces]:
        """Those of which all is known that is told of the prompt, and those that wait for it."""
        ready = tuple(piece for piece in pieces if self._prompt_is_scored(piece.choice))
        return ready, tuple(piece for piece in pieces if piece not in ready)

    def _prompt_is_scored(self, choice: int) -> bool:
        """Whether the scores of its prompt are here: the first draw's request asks for them, and
        another draw may begin before."""
        first = self.choices[choice - choice % self.n]
        return bool(first.token_ids) or first.finish is not None

    async def run(self) -> None:
        """Generate all of it; the answer is in `choices`."""
        async with aclosing(self.pieces()) as pieces:
            async for _ in pieces:
                pass

    def _log_end(self) -> None:
        """One line a call: numbers and the id, never text."""
        usage, seconds = self.usage(), (self.ended or self.started) - self.started
        ends = ", ".join(sorted({choice.finish or "cut short" for choice in self.choices}))
        log.info(
            "%s: %d tokens in (%d cached), %d out, %.2f s, %s",
            self.origin.name,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            seconds,
            ends,
        )
        self._service.request_log.ended(self.origin, [choice.text for choice in self.choices])

    def _take_down(self, *choices: Choice, over: bool = False) -> None:
        """Into the record, what these have got so far. over: no more will come."""
        if self._record is not None:
            for choice in choices:
                request = self.requests[choice.index]
                self._record.took(choice, request, over=over)

    def _noted(self, error: ApiError) -> ApiError:
        if self._record is not None:
            self._record.error = error.body.code or error.body.type
        return error

    def abort(self) -> None:
        """End what still runs; its choices finish with "abort"."""
        for request, choice in zip(self.requests, self.choices, strict=True):
            if choice.finish is None:
                self._client.abort(request.id)

    @property
    def rid(self) -> str:
        """The answer's id."""
        return self.origin.rid

    @property
    def finishes(self) -> list[str | None]:
        """How each choice ended; None for one that did not, or was cut short."""
        return [choice.finish for choice in self.choices]

    def usage(self, prompt: int | None = None) -> Usage:
        """Tokens of one prompt and its choices, or of all."""
        chosen = range(len(self.prompts)) if prompt is None else (prompt,)
        mine = [self.choices[p * self.n : (p + 1) * self.n] for p in chosen]
        return Usage(
            prompt_tokens=sum(len(self.prompts[p]) for p in chosen),
            completion_tokens=sum(len(c.token_ids) for choices in mine for c in choices),
            cached_tokens=sum(choices[0].cached_tokens for choices in mine),
        )

    def _take(self, output: StepOutput, timing: Timing) -> Piece | None:
        choice = self.choices[self._by_id[output.request_id]]
        if choice.finish is not None:
            return None  # a stop string ended it; this is what the engine had under way
        if output.finish is FinishReason.ERROR:
            raise self._noted(_failed(output, self._service.retry_after))
        piece = choice.take(output)
        timing.take(choice, output)
        if self._record is not None:
            self._take_down(choice)
        if self.first_token is None and choice.token_ids:
            self.first_token = time.monotonic()
        if choice.finish is not None and output.finish is None:
            self._client.abort(output.request_id)
        return piece


def _refused(error: EngineUnavailable | RequestRefused, retry_after: int) -> ApiError:
    if isinstance(error, EngineUnavailable):
        return unavailable(str(error), "engine_unavailable")
    if isinstance(error, QueueFull):
        return unavailable(str(error), "queue_full", retry_after)
    if isinstance(error, RequestSuspected):
        return bad_request(str(error), code="present_in_crashes")
    return bad_request(str(error))


def _failed(output: StepOutput, retry_after: int) -> ApiError:
    text = output.error or "the engine ended the request without a reason"
    if output.failure is Failure.WAITED_TOO_LONG:
        return unavailable(text, "queue_timeout", retry_after)
    if output.failure is Failure.RAN_TOO_LONG:
        return timed_out(text)
    if output.failure is Failure.IMPOSSIBLE:
        return bad_request(text, code="nothing_to_say")
    return server_error(text)
