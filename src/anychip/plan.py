"""One step as plain integers: the scheduler writes a plan, the runner answers with a result."""

from __future__ import annotations

import msgspec

from anychip.request import NO_LOGPROBS, SamplingParams, TokenLogprob

PREV = -1
"""In `Row.tokens`: the token that the step before is still sampling for this slot (overlap)."""

NOT_EMITTED = -1
"""In `Row.emit`: the token that is sampled is the one that goes on."""

NOT_SAMPLED = -1
"""In `StepResult.tokens`: the row did not ask for a token (a middle prefill chunk), or had none to
choose from (every logit is NaN)."""

SINK_PAGE = 0
"""Page 0 is never given out: padding rows write there and nobody reads it."""


class Score(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of a prompt whose probability is wanted.

    tokens: the first one follows on the row's token at index `at`. top: how many likeliest ones
    are told beside each.
    """

    tokens: tuple[int, ...]
    at: int
    top: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence's share of a step.

    slot: row of the per-slot page tables, in [0, max_running).
    start: cache position of `tokens[0]`; positions are start .. start + len(tokens) - 1.
    sample: whether the logits of the last token choose a next token.
    noise: one uniform in [0, 1) for this draw, see `schedule/noise.py`.
    shaped: the slot's `SlotStart` says how its logits are shaped.
    logprobs: how many likeliest tokens are told beside the sampled one; NO_LOGPROBS: nothing is.
    state_from, state_to: slots that its recurrent state is read from and written to, where the
    model has one; nothing is read where `start` is 0.
    emit: the token that stands for the sampled one, before anything else looks at that.
    """

    slot: int
    tokens: tuple[int, ...]
    start: int
    sample: bool
    temperature: float = 0.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    noise: float = 0.0
    shaped: bool = False
    logprobs: int = NO_LOGPROBS
    score: Score | None = None
    state_from: int = 0
    state_to: int = 0
    emit: int = NOT_EMITTED

    @property
    def logit_rows(self) -> int:
        """Positions of this row whose logits are computed."""
        return self.sample + (len(self.score.tokens) if self.score else 0)


class SlotStart(msgspec.Struct, frozen=True, kw_only=True):
    """A slot is given to a request whose logits are shaped.

    tokens: its prompt and what it has produced so far; prompt_length: how many are the prompt's.
    """

    slot: int
    params: SamplingParams
    tokens: tuple[int, ...]
    prompt_length: int


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """Entries `first .. first + len(pages) - 1` of one slot's page table become `pages`."""

    slot: int
    first: int
    pages: tuple[int, ...]


class PageMove(msgspec.Struct, frozen=True, array_like=True):
    """One page's keys and values, all layers, copied between the cache and a slot of host memory.

    to_host: from the page to the slot; otherwise from the slot to the page.
    """

    page: int
    slot: int
    to_host: bool


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one step, decodes first, and the page-table changes to apply before it.

    moves: done before the step and one after the other: a later one may write what an earlier
    one reads. starts: slots that begin to be shaped with this step. decoding: how many rows
    compute what a running answer wants. plain: each row is one token behind which one is sampled,
    by temperature and thresholds alone, and nothing else is told: the runner then looks for
    nothing more. False is never wrong.
    """

    step: int
    rows: tuple[Row, ...]
    decoding: int = 0
    changes: tuple[TableChange, ...] = ()
    moves: tuple[PageMove, ...] = ()
    starts: tuple[SlotStart, ...] = ()
    plain: bool = False

    @property
    def token_count(self) -> int:
        """Tokens computed in this step."""
        return len(self.rows) if self.plain else sum(len(row.tokens) for row in self.rows)


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The sampled token of each row of the plan, in its order, or NOT_SAMPLED.

    The others are by the row's index in the plan, and hold only rows that have some.
    forced: tokens that a grammar has follow the sampled one. errors: why a request cannot go on.
    logprobs: of the sampled token. scores: of those that the row wants scored.
    """

    tokens: tuple[int, ...]
    forced: dict[int, tuple[int, ...]] = {}
    errors: dict[int, str] = {}
    logprobs: dict[int, TokenLogprob] = {}
    scores: dict[int, tuple[TokenLogprob, ...]] = {}


class CacheLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler may hand out; the runner measured it from the chip's memory.

    pages: usable pages, the sink page not counted (ids 1 .. pages).
    page_size: cache positions a page. context_length: positions a sequence at most.
    max_running: slots. step_tokens: token budget of one step. chunk: prefill tokens of one
    sequence in one step at most (equal to step_tokens where chunking is on). host_slots: pages
    that host memory keeps of those that are evicted (ids 1 .. host_slots); 0: none. logit_rows:
    positions whose logits one step computes; over max_running, or it counts as one more than that.
    recurrent: some layers keep a state; a running request's is in slot 1 + its slot, snapshots are
    in the `snapshots` slots behind max_running. snapshot_every: positions from one to the next.
    """

    pages: int
    page_size: int
    context_length: int
    max_running: int
    step_tokens: int
    chunk: int
    host_slots: int = 0
    logit_rows: int = 0
    recurrent: bool = False
    snapshots: int = 0
    snapshot_every: int = 0

    @property
    def state_slots(self) -> int:
        """Slots of recurrent state, the sink included; 0 where no layer keeps one."""
        return 1 + self.max_running + self.snapshots if self.recurrent else 0


class SchedulerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot for metrics, taken after a commit. Tokens are lifetime counters."""

    running: int = 0
    queued: int = 0
    queued_tokens: int = 0  # of the prompts and outputs that wait
    pages_total: int = 0
    pages_free: int = 0
    pages_cached: int = 0  # in the radix tree and evictable
    pages_held: int = 0  # used by running requests
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_host: int = 0  # the part of them that came back from host memory
    host_slots_total: int = 0  # pages that host memory holds
    host_slots_free: int = 0
    host_saved_pages: int = 0
    host_loaded_pages: int = 0
    generated_tokens: int = 0
    retractions: int = 0
    preemptions: int = 0  # retractions that made way for a higher priority
    evicted_pages: int = 0
    aborted: int = 0
    timed_out: int = 0
    expected_output: float = 0.0  # share of their rest that admission leaves room for
    steps: int = 0
    check_violations: int = 0
    snapshots_total: int = 0  # of recurrent state, where the model has one
    snapshots_free: int = 0
    snapshots_taken: int = 0
    snapshots_evicted: int = 0  # so that another one could be taken

    @property
    def cached_tokens_device(self) -> int:
        """Prompt tokens that were found in the cache itself."""
        return self.cached_tokens - self.cached_tokens_host
