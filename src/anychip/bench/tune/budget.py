"""From the memory to the admissible batch window: pages that fit, requests that fit into them.

The chip is opened in a process of its own, as the doctor's looks are taken: what a vendor's library
keeps after its close must not be missing when the servers start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from anychip.bench.sound import CHILD_S, without_keys
from anychip.config import ConfigError, ServeConfig
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.registration import read_options
from anychip.engine.build import planned_memory
from anychip.engine.parent import die_with
from anychip.run.fingerprint import fingerprint_of
from anychip.run.memory_plan import MemoryPlan, NotEnoughMemory, workspace_bytes
from anychip.run.plan_run import Opened, chip_options, open_run, step_limits

Lengths = Sequence[tuple[int, int]]
"""Tokens of each prompt and of its answer."""

Pages = Callable[[int], int]
"""Pages of the cache where so many requests may run at once; 0 where they do not fit."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """memory: bytes by use. pages, page_size: of the cache, at the window. mean, longest: tokens of
    a request, prompt and answer. window: the batch window, the most requests of the mean length
    that fit at once, no more than there are. at_longest: of the longest. running, chunk: what the
    base has, given or chosen. context: the longest sequence that the server takes. fingerprint:
    machine and chip."""

    memory: dict[str, int]
    page_size: int
    pages: int
    mean: float
    longest: int
    window: int
    at_longest: int
    requests: int
    running: int
    chunk: int
    context: int
    device: str
    fingerprint: dict[str, Any]

    @property
    def tokens(self) -> int:
        """That the cache holds."""
        return self.pages * self.page_size

    def told(self) -> list[str]:
        """In words and figures, a line each."""
        sizes = ", ".join(f"{name} {_mib(size)}" for name, size in self.memory.items())
        limit = "all" if self.window == self.requests else "no more fit"
        lines = [
            f"memory: {sizes}",
            f"cache: {self.pages:,} pages of {self.page_size} = {self.tokens:,} tokens",
            f"requests: {self.requests:,} of {self.mean:,.0f} tokens, the longest {self.longest:,}",
            f"batch window: {self.window:,} of them at once ({limit}), {self.at_longest:,} of the"
            " longest",
        ]
        if self.running > self.window and self.window < self.requests:
            lines.append(
                f"the base's --max-running-requests {self.running:,} is over the batch window:"
                " where all slots are taken, some requests will have to give way"
            )
        return lines


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def pages_each(lengths: Lengths, page_size: int) -> float:
    """Mean pages that a request has taken when it ends."""
    return sum(-(-(prompt + answer) // page_size) for prompt, answer in lengths) / len(lengths)


def window(pages: Pages, each: float, most: int) -> int:
    """The most requests, up to `most`, that fit at once; at least 1.

    each: pages of a request. More requests at once also take more of the memory for themselves, so
    `pages` falls: the answer is searched for, by doubling and then halving.
    """

    def fit(count: int) -> bool:
        return pages(count) >= count * each

    good, bad = 1, 2
    while bad <= most and fit(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, most + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fit(middle) else (good, middle)
    return good


def find_budget(config: ServeConfig, lengths: Lengths) -> Budget:
    """Raises BudgetError where the model or a request does not fit."""
    question = {**without_keys(config), "lengths": [list(pair) for pair in lengths]}
    try:
        found = run_in_child(f"{__name__}:answer_budget", question, CHILD_S)
    except ChildFailed as error:
        raise BudgetError(f"the memory budget cannot be found: {error}") from error
    budget = msgspec.convert(found, Budget)
    check_lengths(budget, lengths)
    return budget


def check_lengths(budget: Budget, lengths: Lengths) -> None:
    """ConfigError where a request is longer than the server takes."""
    long = [total for total in map(sum, lengths) if total > budget.context]
    if long:
        raise ConfigError(
            f"--trace: {len(long)} of {len(lengths)} requests are longer than the"
            f" {budget.context:,} tokens that a server here takes, the longest has {max(long):,};"
            " scale them (--scale-input, --scale-output) or cut them (--max-input, --max-output)"
        )


class BudgetError(RuntimeError):
    """No budget; the text says why."""


def answer_budget(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the child does."""
    die_with(question["parent"])
    config = msgspec.convert(question["config"], ServeConfig)
    lengths = [(int(prompt), int(answer)) for prompt, answer in question["lengths"]]
    opened = open_run(config)
    try:
        found: dict[str, Any] = msgspec.to_builtins(_budget(config, opened, lengths))
        return found
    finally:
        opened.close()


def _budget(config: ServeConfig, opened: Opened, lengths: Lengths) -> Budget:
    size = opened.plan.group.page_size
    each, longest = pages_each(lengths, size), max(map(sum, lengths))
    most = min(len(lengths), opened.chip.capabilities().max_rows or len(lengths))
    found = window(lambda running: _pages(config, opened, running), each, most)
    memory = _planned(config, opened, found)
    options = read_options(type(opened.chip), chip_options(config))
    fingerprint = fingerprint_of(opened.chip, config.device_index, config.chip_option, options)
    return Budget(
        memory=memory.table(),
        page_size=size,
        pages=memory.pages,
        mean=sum(map(sum, lengths)) / len(lengths),
        longest=longest,
        window=found,
        at_longest=min(most, memory.pages // -(-longest // size)),
        requests=len(lengths),
        running=opened.limits.max_running,
        chunk=opened.chunk,
        context=_planned(config, opened, opened.limits.max_running).longest,
        device=str(fingerprint["device"].get("name", "")),
        fingerprint=fingerprint,
    )


def _pages(config: ServeConfig, opened: Opened, running: int) -> int:
    try:
        return _planned(config, opened, running).pages
    except NotEnoughMemory:
        return 0


def _planned(config: ServeConfig, opened: Opened, running: int) -> MemoryPlan:
    """How the memory is shared out where so many may run at once. Raises NotEnoughMemory."""
    asked = replace(config, max_running_requests=running)
    limits, _ = step_limits(asked, opened.plan, opened.chip, composed=opened.composed_attention)
    changed = replace(opened, limits=limits)
    workspace = sum(workspace_bytes(opened.plan, limits, opened.decider))
    return planned_memory(asked, changed, workspace)
