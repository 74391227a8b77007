"""A model that is a function of what it reads through the page tables, and its reference.

The runner double keeps real table and page memory. A wrong page, a stale table entry, a page
that two sequences write or a token out of place changes what is read back, and so the answer.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from anychip.plan import (
    NOT_EMITTED,
    NOT_SAMPLED,
    PREV,
    SINK_PAGE,
    CacheLimits,
    Row,
    SlotStart,
    StepPlan,
    StepResult,
)
from anychip.request import FinishReason, Request, SamplingParams, StepOutput, TokenLogprob
from anychip.schedule.noise import uniform
from anychip.schedule.scheduler import Scheduler, SchedulerOptions

VOCABULARY = 50
EOS = 0


def digest(tokens: Iterable[int], before: int = 0) -> int:
    """Every token and its place count; a sequence may be digested part by part."""
    return crc32(array("i", tokens).tobytes(), before)


def next_token(digested: int, noise: float) -> int:
    return int(digested + noise * VOCABULARY) % VOCABULARY


def may_jump(params: SamplingParams) -> bool:
    """Whether a grammar forces tokens on it."""
    return params.grammar is not None and params.logprobs < 0


def forced(digested: int) -> tuple[int, ...]:
    """What has to follow on these tokens, by whatever grammar: mostly nothing."""
    count = (0, 0, 0, 1, 2, 9)[digested % 6]
    return tuple((digested // 7 + 11 * n) % VOCABULARY for n in range(count))


def is_plain(row: Row) -> bool:
    """Whether it is one token behind which one is sampled, and nothing else is wanted."""
    wanted = (row.shaped, row.score, row.logprobs >= 0, row.emit != NOT_EMITTED)
    return len(row.tokens) == 1 and row.sample and not any(wanted)


def score(digested: int, token: int, top: int) -> TokenLogprob:
    """How probable `token` is behind what was digested."""
    likeliest = tuple((n, float((digested + n) % 100)) for n in range(top))
    return TokenLogprob(-float(digested % 1000), token, likeliest)


def expected(
    request: Request, context_length: int, *, jump: bool = True
) -> tuple[list[int], FinishReason]:
    """What the request has to answer, computed without pages, steps or neighbours."""
    tokens, params = list(request.prompt), request.params
    jump, most = jump and may_jump(params), len(tokens) + params.max_tokens
    digested, coming = digest(tokens), ()
    while True:
        if not coming:
            position = len(tokens) - len(request.prompt)
            noise = uniform(params.seed, position, params.draw) if params.temperature else 0.0
            token = next_token(digested, noise)
            coming = (token, *(forced(digest([token], digested)) if jump else ()))
        token, *coming = coming
        tokens.append(token)
        digested = digest([token], digested)
        if token in params.stop_token_ids or (token == EOS and not params.ignore_eos):
            return tokens[len(request.prompt) :], FinishReason.STOP
        if len(tokens) >= min(most, context_length):
            return tokens[len(request.prompt) :], FinishReason.LENGTH


def expected_scores(request: Request) -> list[TokenLogprob]:
    """What has to be told of its prompt."""
    prompt, params = request.prompt, request.params
    places = range(params.prompt_logprobs_from, len(prompt)) if params.prompt_logprobs >= 0 else ()
    return [score(digest(prompt[:at]), prompt[at], params.prompt_logprobs) for at in places]


def expected_logprobs(request: Request, answer: Sequence[int]) -> list[TokenLogprob]:
    """What has to be told of the tokens of its answer."""
    digested, found = digest(request.prompt), []
    for token in answer if request.params.logprobs >= 0 else ():
        found.append(score(digested, token, request.params.logprobs))
        digested = digest([token], digested)
    return found


class Told(NamedTuple):
    """By row; see StepResult."""

    forced: dict[int, tuple[int, ...]]
    logprobs: dict[int, TokenLogprob]
    scores: dict[int, tuple[TokenLogprob, ...]]


class TableRunner:
    """Executes plans against tables[slot] = pages and memory[page][offset] = token.

    host[slot] is a page's copy in host memory. known[slot]: tokens of a request whose logits are
    shaped, as `SlotStart` told them and with what was sampled since; jumps: slots whose tokens a
    grammar forces. states[slot]: the recurrent state, what a sequence's tokens digest to and how
    many they are; it has to be that of what is read through the pages.
    """

    def __init__(self, limits: CacheLimits, *, jump: bool = True) -> None:
        self.limits, self.jump = limits, jump
        self.known: dict[int, list[int]] = {}
        self.jumps: set[int] = set()
        self.sampled: dict[int, int] = {}  # by the step before, by slot
        self.host: dict[int, list[int | None]] = {}
        self.states: dict[int, tuple[int, int] | None] = {}
        self.tables: dict[int, list[int]] = defaultdict(list)
        self.memory: dict[int, list[int | None]] = {
            page: [None] * limits.page_size for page in range(1, limits.pages + 1)
        }

    def run(self, plan: StepPlan, lost: frozenset[int] = frozenset()) -> StepResult:
        """lost: slots whose rows follow on a step that failed; nobody wants what they give."""
        assert 0 < plan.token_count <= self.limits.step_tokens
        scored = sum(len(row.score.tokens) for row in plan.rows if row.score)
        slots = min(self.limits.max_running, self.limits.step_tokens)
        assert scored <= max(self.limits.logit_rows - slots, 1), "too many logits"
        assert len({row.slot for row in plan.rows}) == len(plan.rows)
        rows = [row for row in plan.rows if row.slot not in lost]
        for move in plan.moves:
            assert 1 <= move.slot <= self.limits.host_slots
            if move.to_host:
                self.host[move.slot] = list(self.memory[move.page])
            else:
                self.memory[move.page] = list(self.host[move.slot])
        self.apply(plan, lost)
        for row in rows:
            assert PREV not in row.tokens or len(row.tokens) == 1
            for position, token in enumerate(self.tokens(row), row.start):
                page, offset = self.place(row.slot, position)
                self.memory[page][offset] = token
        if self.limits.recurrent:
            self.recur(rows)
        self.begin(plan.starts)
        answers, told = [], Told({}, {}, {})
        for index, row in enumerate(plan.rows):
            assert 0 <= row.slot < self.limits.max_running
            count = row.start + len(row.tokens) if row.slot not in lost else 0
            read = self.read(row.slot, count)
            seen = digest(read)
            if self.limits.recurrent and count:
                assert self.states[row.state_to] == (seen, count), "another sequence's state"
            answers.append(next_token(seen, row.noise) if row.sample else NOT_SAMPLED)
            if (row.shaped or row.score or row.logprobs >= 0) and count:
                self.tell(index, row, read, answers[-1], told)
        self.sampled = {
            row.slot: token for row, token in zip(plan.rows, answers, strict=True) if row.sample
        }
        return StepResult(
            tokens=tuple(answers), forced=told.forced, logprobs=told.logprobs, scores=told.scores
        )

    def tokens(self, row: Row) -> tuple[int, ...]:
        """A row's tokens, those that the step before sampled included."""
        return (self.sampled[row.slot],) if row.tokens == (PREV,) else row.tokens

    def recur(self, rows: list[Row]) -> None:
        """Read all states, then write them: a slot is written once and read by nobody else."""
        targets, found = [row.state_to for row in rows], {}
        assert len(set(targets)) == len(targets), "two rows write a state to one slot"
        for row in rows:
            before = (0, 0)
            if row.start:
                others = set(targets) - {row.state_to}
                assert row.state_from not in others, "a state is read while another is written"
                before = self.states[row.state_from]
                assert before is not None, "a state was read that a failed step wrote"
                assert before[1] == row.start, "a state of another position"
            found[row.state_to] = (digest(self.tokens(row), before[0]), row.start + len(row.tokens))
        assert all(0 < slot < self.limits.state_slots for slot in found)
        self.states |= found

    def begin(self, starts: Iterable[SlotStart]) -> None:
        """Slots that are shaped from now on."""
        for start in starts:
            assert 0 < start.prompt_length <= len(start.tokens)
            self.known[start.slot] = list(start.tokens)
            self.jumps.discard(start.slot)
            if self.jump and may_jump(start.params):
                self.jumps.add(start.slot)

    def tell(self, index: int, row: Row, read: list[int], token: int, told: Told) -> None:
        """What is said of a row beside its token."""
        seen = digest(read)
        if row.score:
            first = row.start + row.score.at + 1
            places = enumerate(row.score.tokens, first)
            assert first + len(row.score.tokens) <= len(read) + 1
            told.scores[index] = tuple(
                score(digest(read[:at]), token, row.score.top) for at, token in places
            )
        if row.logprobs >= 0:
            told.logprobs[index] = score(seen, token, row.logprobs)
        if row.shaped:
            known = self.known[row.slot]
            assert read == known[: len(read)], "what shapes the logits is not what is computed"
            assert len(read) == len(known), "a token is sampled that is known already"
            following = forced(digest([token], seen)) if row.slot in self.jumps else ()
            known += (token, *following)
            if following:
                told.forced[index] = following

    def apply(self, plan: StepPlan, lost: frozenset[int] = frozenset()) -> None:
        """Take in the changes of the tables."""
        assert not plan.plain or all(map(is_plain, plan.rows))
        for change in plan.changes:
            if change.slot in lost:
                continue
            table = self.tables[change.slot]
            assert change.first <= len(table)
            table[change.first : change.first + len(change.pages)] = change.pages

    def place(self, slot: int, position: int) -> tuple[int, int]:
        page = self.tables[slot][position // self.limits.page_size]
        assert page != SINK_PAGE
        return page, position % self.limits.page_size

    def read(self, slot: int, count: int) -> list[int | None]:
        """The first `count` positions of a slot."""
        pages = self.tables[slot][: -(-count // self.limits.page_size)]
        assert SINK_PAGE not in pages
        seen = [token for page in pages for token in self.memory[page]][:count]
        assert len(seen) == count, "a position was read that has no page"
        assert None not in seen, "a position was read that nobody wrote"
        return seen


class Session:
    """A scheduler with its runner; every step is checked and every output collected.

    overlap: a step is planned behind the one in flight. "eager": the runner is as far as it can
    be; "lazy": it runs a step only when its result is wanted.
    """

    def __init__(
        self,
        limits: CacheLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        overlap: str = "",
        make: Callable[..., Scheduler] = Scheduler,
        **options: object,
    ) -> None:
        self.limits, self.overlap = limits, overlap
        self.jump = bool(options.get("jump_forward", True))
        self.takes_priorities = options.get("policy") == "priority"
        self.flights: deque[tuple[StepPlan, StepResult | None]] = deque()
        self.lost: frozenset[int] = frozenset()
        self.scheduler = make(limits, frozenset({EOS}), SchedulerOptions(**options), clock)
        self.runner = TableRunner(limits, jump=self.jump)
        self.requests: dict[str, Request] = {}
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.logprobs: dict[str, list[TokenLogprob]] = defaultdict(list)
        self.scores: dict[str, list[TokenLogprob]] = defaultdict(list)
        self.last: dict[str, StepOutput] = {}
        self.plans: list[StepPlan] = []

    def add(self, request: Request) -> None:
        self.scheduler.add(request)
        self.requests[request.id] = request

    def take(self, outputs: list[StepOutput]) -> None:
        for output in outputs:
            before = self.last.get(output.request_id)
            assert before is None or before.finish is None, "an output after the last one"
            self.tokens[output.request_id] += output.token_ids
            self.logprobs[output.request_id] += output.logprobs
            self.scores[output.request_id] += output.prompt_logprobs
            self.last[output.request_id] = output

    def plan(self) -> StepPlan | None:
        plan = self.scheduler.plan()
        assert self.scheduler.check() == []
        if plan is not None:
            self.plans.append(plan)
        return plan

    def commit(self, plan: StepPlan) -> None:
        self.take(self.scheduler.commit(plan, self.runner.run(plan)))
        assert self.scheduler.check() == []

    def step(self) -> bool:
        if self.overlap:
            return self.overlapped_step()
        plan = self.plan()
        if plan is None:
            self.take(self.scheduler.take_outputs())
            return False
        self.commit(plan)
        return True

    def overlapped_step(self) -> bool:
        self.take_off(ahead=True)
        if not self.flights:
            self.take(self.scheduler.take_outputs())
            return False
        self.land(*self.flights.popleft())
        return True

    def take_off(self, *, ahead: bool) -> None:
        """Have a step in flight, where there is one to run, and with `ahead` one behind it."""
        if not self.flights:
            self.launch(self.plan())
        if ahead and self.overlap and len(self.flights) == 1:
            self.launch(plan := self.scheduler.plan_ahead())
            assert self.scheduler.check() == []
            self.plans += [plan] if plan is not None else []

    def land(self, plan: StepPlan, result: StepResult | None) -> None:
        result, self.lost = result or self.runner.run(plan, self.lost), frozenset()
        self.take(self.scheduler.commit(plan, result))
        assert self.scheduler.check() == []

    def fail(self, plan: StepPlan, result: StepResult | None) -> set[str]:
        """The oldest step fails; who ends by it. One that is not run yet never is."""
        follows_on = bool(self.flights) and result is None
        live, rows = self.scheduler._state.by_id, self.scheduler._flights[0].sequences
        slots = frozenset(s.slot for s in rows if live.get(s.request.id) is s)
        self.lost = slots if follows_on else frozenset()
        outputs = self.scheduler.fail(plan, "the chip said no")
        self.take(outputs)
        assert self.scheduler.check() == []
        return {output.request_id for output in outputs}

    def launch(self, plan: StepPlan | None) -> None:
        if plan is not None:
            self.flights.append((plan, self.runner.run(plan) if self.overlap == "eager" else None))

    def drain(self, most_steps: int = 20_000) -> None:
        for _ in range(most_steps):
            if not self.step():
                break
        assert not self.scheduler.has_work()

    def finish(self, request_id: str) -> FinishReason | None:
        return self.last[request_id].finish

    def assert_right(self, request_id: str) -> None:
        request = self.requests[request_id]
        tokens, finish = expected(request, self.limits.context_length, jump=self.jump)
        assert (self.tokens[request_id], self.finish(request_id)) == (tokens, finish), request_id
        self.assert_told(request_id)

    def assert_told(self, request_id: str) -> None:
        """The probabilities of its prompt and of its tokens so far."""
        request = self.requests[request_id]
        answer = expected_logprobs(request, self.tokens[request_id])
        assert self.scores[request_id] == expected_scores(request), request_id
        assert self.logprobs[request_id] == answer, request_id

    def assert_nothing_held(self) -> None:
        stats = self.scheduler.stats()
        assert (stats.pages_held, stats.running, stats.queued) == (0, 0, 0)


def limits(**values: int) -> CacheLimits:
    defaults = {
        "pages": 64,
        "page_size": 4,
        "context_length": 128,
        "max_running": 8,
        "step_tokens": 64,
        "chunk": 64,
    }
    return CacheLimits(**{**defaults, **values})


def ask(name: str, prompt: list[int], max_tokens: int = 8, **values: object) -> Request:
    namespace, priority = str(values.pop("namespace", "")), int(values.pop("priority", 0))
    fields = {"temperature": 0.0, "ignore_eos": True, **values}
    return Request(
        id=name,
        prompt=tuple(prompt),
        params=SamplingParams(max_tokens=max_tokens, **fields),
        namespace=namespace,
        priority=priority,
    )
