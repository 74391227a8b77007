"""The scheduler's record of one request."""

from __future__ import annotations

from array import array

from anychip.plan import PREV, Row
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
    came later were started before it. decodes_since: how many had come when it had its first
    token, -1: it has none; retraction does not undo it. follows: whose prefill it waits for, which
    computes what both share, up to position follows_until.
    """

    __slots__ = (
        "aborted",
        "admitted",
        "ahead",
        "arrival",
        "cached_tokens",
        "computed",
        "decodes_since",
        "dirty_from",
        "follows",
        "follows_until",
        "node",
        "noise",
        "overtaken",
        "pages",
        "pending",
        "prompt_length",
        "request",
        "retractions",
        "shared",
        "since",
        "slot",
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
        allowed = self.request.params.max_tokens - self.output_length
        return min(allowed, context_length - len(self.tokens))

    def loss(self, page_size: int) -> int:
        """Computed positions that a retraction throws away: those outside the prefix tree."""
        return self.computed - self.shared * page_size

    def decodes(self, context_length: int) -> bool:
        """Whether it has one more token to compute, sampled or about to be, and may go on by it."""
        left = len(self.tokens) + self.pending - self.planned
        return left == 1 and self.remaining(context_length) > self.pending

    def row(self, count: int) -> Row:
        """Return the row that computes the next `count` positions behind those in flight.

        The last position samples; PREV stands for the one that a step in flight samples. A greedy
        row's noise is never read and stays 0.
        """
        start = self.planned
        end = start + count
        tokens = tuple(self.tokens[start:end]) or (PREV,)
        if end < len(self.tokens):
            return Row(slot=self.slot, tokens=tokens, start=start, sample=False)
        params = self.request.params
        return Row(
            slot=self.slot,
            tokens=tokens,
            start=start,
            sample=True,
            temperature=self.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            noise=self.noise.at(self.output_length + self.pending) if self.temperature else 0.0,
        )

    def take_off(self, row: Row) -> None:
        """Its row is part of a step in flight now."""
        self.ahead += len(row.tokens)
        self.pending += row.sample

    def land(self, row: Row) -> None:
        """The oldest step in flight that has a row of it is over."""
        self.computed += len(row.tokens)
        self.ahead -= len(row.tokens)
        self.pending -= row.sample

    def end_after(
        self, token: int, eos_ids: frozenset[int], context_length: int
    ) -> FinishReason | None:
        """Say whether `token`, already appended, was the last one."""
        params = self.request.params
        if token in params.stop_token_ids or (token in eos_ids and not params.ignore_eos):
            return FinishReason.STOP
        return FinishReason.LENGTH if self.remaining(context_length) <= 0 else None
