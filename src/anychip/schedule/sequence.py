"""The scheduler's record of one request."""

from __future__ import annotations

from array import array

from anychip.plan import NOT_EMITTED, PREV, Row, Score, SlotStart
from anychip.request import FinishReason, Request

from .noise import NoiseStream
from .radix_node import RadixNode

GREEDY_BELOW = 1e-6
"""A temperature under this is greedy: the softmax would overflow before it mattered."""


class Sequence:
    """One request: queued (slot -1, no pages), prefilling, or decoding.

    tokens: prompt and output. computed: positions whose KV is in the cache, 0 .. computed - 1.
    pages: the slot's page table. Its first `shared` pages belong to the prefix tree and are
    locked through `node`; the others are this sequence's own. Hence
    shared * page_size <= computed <= len(pages) * page_size: a shared page is never written.
    dirty_from: table entries from here on are not told to the runner yet.
    ahead: positions behind `computed` that steps in flight compute. pending: tokens that they
    sample, which `tokens` does not have yet.
    since: when it came, or once it was admitted, when that was first. overtaken: how many that
    came later were started before it. decodes_since: how many had come when it had decoded for
    BURST_S, -1: it has not yet; retraction does not undo it. follows: whose prefill it waits for,
    which computes what both share, up to position follows_until.
    score_next: the first token of the prompt whose probability nobody has asked the runner for;
    prompt_length where none is left. may_jump: a grammar may force tokens behind a sampled one,
    which are then computed together; not where their probabilities are wanted. is_plain: nothing
    but tokens is wanted of it, chosen by temperature and thresholds alone. start_due: the
    runner has to be told how to shape its logits.
    state_at: the slot of its recurrent state behind `planned` positions; 0: it has none. coming:
    snapshots that steps in flight write, or that have just landed: position -> slot. stops:
    positions that others want a snapshot at.
    """

    __slots__ = (
        "aborted",
        "admitted",
        "ahead",
        "arrival",
        "cached_tokens",
        "coming",
        "computed",
        "decodes_since",
        "dirty_from",
        "follows",
        "follows_until",
        "is_plain",
        "may_jump",
        "node",
        "noise",
        "overtaken",
        "pages",
        "pending",
        "prompt_length",
        "request",
        "retractions",
        "score_next",
        "shared",
        "since",
        "slot",
        "start_due",
        "state_at",
        "stops",
        "temperature",
        "tokens",
    )

    def __init__(self, request: Request, arrival: int, since: float) -> None:
        params = request.params
        self.request = request
        self.arrival = arrival
        self.since = since
        self.overtaken = 0
        self.decodes_since = -1
        self.follows: Sequence | None = None
        self.follows_until = 0
        self.tokens = array("i", request.prompt)
        self.prompt_length = len(request.prompt)
        self.noise = NoiseStream(params.seed, params.draw)
        self.temperature = 0.0 if params.temperature < GREEDY_BELOW else params.temperature
        self.admitted = False  # at least once; retraction does not undo it
        self.aborted = False  # takes effect at the commit of the step in flight
        self.cached_tokens = 0
        self.retractions = 0
        self.may_jump = params.grammar is not None and params.logprobs < 0
        asked = params.prompt_logprobs >= 0
        told = asked or params.logprobs >= 0
        self.is_plain = not (told or params.emit or params.shapes_logits)
        self.score_next = params.prompt_logprobs_from if asked else self.prompt_length
        self.forget_place()

    def forget_place(self) -> None:
        """Forget slot and pages, which the caller has given back."""
        self.slot = -1
        self.pages: list[int] = []
        self.shared = 0
        self.node: RadixNode | None = None
        self.computed = 0
        self.ahead = 0
        self.pending = 0
        self.dirty_from = 0
        self.state_at = 0
        self.coming: dict[int, int] = {}
        self.stops: set[int] = set()
        self.start_due = self.request.params.shapes_logits

    @property
    def planned(self) -> int:
        """Positions that are computed once the steps in flight have landed."""
        return self.computed + self.ahead

    @property
    def output_length(self) -> int:
        """Tokens produced so far, retractions survived."""
        return len(self.tokens) - self.prompt_length

    def remaining(self, context_length: int) -> int:
        """Tokens that it may still produce."""
        allowed = self.request.params.max_tokens + self.prompt_length
        return min(allowed, context_length) - len(self.tokens)

    @property
    def is_scored(self) -> bool:
        """Whether probabilities of its prompt are still to be found."""
        return self.score_next < self.prompt_length

    @property
    def reusable(self) -> int:
        """Positions that may come from the cache: the logits of the others are wanted."""
        return (self.score_next if self.is_scored else len(self.tokens)) - 1

    @property
    def left(self) -> int:
        """Positions that no step computes yet, that of a token about to be sampled included."""
        return len(self.tokens) + self.pending - self.computed - self.ahead

    def within(self, size: int, score_rows: int) -> int:
        """Return how much of a chunk can be computed where so many tokens can be scored."""
        if not self.is_scored:
            return size
        return min(size, max(0, self.score_next - 1 - self.planned) + score_rows)

    def loss(self, page_size: int) -> int:
        """Computed positions that a retraction throws away: those outside the prefix tree."""
        return self.computed - self.shared * page_size

    def row(self, count: int) -> Row:
        """Return the row that computes the next `count` positions behind those in flight.

        The last position samples; PREV stands for the one that a step in flight samples. A greedy
        row's noise is never read and stays 0.
        """
        start, length = self.computed + self.ahead, len(self.tokens)
        end = start + count
        tokens = tuple(self.tokens[start:end]) if start < length else (PREV,)
        params, score = self.request.params, None if self.is_plain else self._score(start, end)
        if end < length:
            return Row(slot=self.slot, tokens=tokens, start=start, sample=False, score=score)
        return Row(
            slot=self.slot,
            tokens=tokens,
            start=start,
            sample=True,
            shaped=not self.is_plain and params.shapes_logits,
            logprobs=params.logprobs,
            score=score,
            temperature=self.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            noise=self.noise.at(self.output_length + self.pending) if self.temperature else 0.0,
            emit=self._emit(self.output_length + self.pending) if params.emit else NOT_EMITTED,
        )

    def next_row(self) -> Row:
        """Return `row(1)` of one that decodes and `is_plain`; it is part of a step from now on."""
        start, params = self.computed + self.ahead, self.request.params
        noise = 0.0
        if self.temperature:
            noise = self.noise.at(len(self.tokens) - self.prompt_length + self.pending)
        token = self.tokens[start] if start < len(self.tokens) else PREV
        self.ahead += 1
        self.pending += 1
        return Row(
            slot=self.slot,
            tokens=(token,),
            start=start,
            sample=True,
            temperature=self.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            noise=noise,
        )

    def _emit(self, position: int) -> int:
        """Return the token that the request names for a position of its output."""
        named = self.request.params.emit
        return named[position] if position < len(named) else NOT_EMITTED

    def _score(self, start: int, end: int) -> Score | None:
        """Return what is wanted of the prompt by the logits of positions start .. end - 1."""
        first = max(start + 1, self.score_next)
        tokens = tuple(self.tokens[first : min(end + 1, self.prompt_length)])
        top = self.request.params.prompt_logprobs
        return Score(tokens, first - 1 - start, top) if tokens else None

    def take_off(self, row: Row) -> None:
        """Its row is part of a step in flight now."""
        self.ahead += len(row.tokens)
        self.pending += row.sample
        if row.score:
            self.score_next = row.start + row.score.at + 1 + len(row.score.tokens)

    def begin(self) -> SlotStart:
        """Return what the runner has to know of it to shape its logits."""
        self.start_due = False
        return SlotStart(
            slot=self.slot,
            params=self.request.params,
            tokens=tuple(self.tokens),
            prompt_length=self.prompt_length,
        )

    def land(self, row: Row) -> None:
        """The oldest step in flight that has a row of it is over."""
        self.computed += len(row.tokens)
        self.ahead -= len(row.tokens)
        self.pending -= row.sample

    def take(self, token: int, eos_ids: frozenset[int], context_length: int) -> FinishReason | None:
        """`land` of the row of `next_row` and its token; say whether that was the last one."""
        self.computed += 1
        self.ahead -= 1
        self.pending -= 1
        self.tokens.append(token)
        return self.end_after(token, eos_ids, context_length)

    def end_after(
        self, token: int, eos_ids: frozenset[int], context_length: int
    ) -> FinishReason | None:
        """Say whether `token`, already appended, was the last one."""
        params = self.request.params
        if token in params.stop_token_ids or (token in eos_ids and not params.ignore_eos):
            return FinishReason.STOP
        most = min(params.max_tokens + self.prompt_length, context_length)
        return FinishReason.LENGTH if len(self.tokens) >= most else None
