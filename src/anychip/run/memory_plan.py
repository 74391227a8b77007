"""How the device's memory is shared out, computed before any weight is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anychip.contract.memory import MemoryInfo
from anychip.ops.arena import plan_arena
from anychip.ops.trace import Program
from anychip.plan import CacheLimits
from anychip.run.masks import mask_words
from anychip.run.model_plan import Decide, ModelPlan, trace_step
from anychip.run.sections import staging_words
from anychip.run.sizes import GREEDY, MOST_TOP, SAMPLED, Choice, Sizes, entry_room

HEADROOM = 0.15
"""Share of the memory kept free unless --mem-fraction-static says otherwise: near capacity,
host-backed memory pages and devices slow down."""

UNIFIED_SHARE = 0.5
"""Where host and device share memory, the cache takes at most this part of what is free unless
the user asks for more: others live there too."""


class NotEnoughMemory(ValueError):
    """The model does not fit; the message has all the numbers."""


SCORED_ROWS = 32
"""Prompt tokens whose probabilities one step can tell beside what it samples."""

MOST_ENTRIES = 1 << 20
"""Logits of one step that can be changed one by one, all rows together."""


@dataclass(frozen=True)
class MemoryWishes:
    """The user's wishes; None leaves it to the plan. snapshots: recurrent state is kept for
    prefixes that come again."""

    fraction: float | None = None
    max_total_tokens: int | None = None
    context_asked: bool = False
    snapshots: bool = True


@dataclass(frozen=True)
class StepLimits:
    """Largest step: rows at once and tokens at once."""

    max_running: int
    step_tokens: int

    @property
    def logit_rows(self) -> int:
        """Positions whose logits one step computes: those that sample, and some of prompts."""
        return self.max_running + min(SCORED_ROWS, self.step_tokens)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by use. pages: usable ones; the sink page is paid for besides. block_pages: the most
    that the device's largest block allows. states: bytes of recurrent state. snapshots: slots of
    it beyond those of running requests."""

    info: MemoryInfo
    weights: int
    workspace: int
    page_bytes: int
    pages: int
    block_pages: int
    headroom: int
    longest: int  # tokens of the longest sequence that fits
    states: int = 0
    snapshots: int = 0

    def table(self) -> dict[str, int]:
        """Bytes by use, in the order in which they are told."""
        spent = {
            "used before": self.info.used,
            "weights": self.weights,
            "workspace": self.workspace,
            **({"recurrent state": self.states} if self.states else {}),
            "cache pages": (self.pages + 1) * self.page_bytes,
            "headroom": self.headroom,
        }
        rest = max(self.info.total - sum(spent.values()), 0)
        return {"total": self.info.total, **spent, "not taken": rest}


def largest_sizes(plan: ModelPlan, limits: StepLimits) -> tuple[Sizes, ...]:
    """Corner cases that bound every step: full prefill and full decode, every way to choose."""
    rows, tokens, most = limits.max_running, limits.step_tokens, plan.most_pages
    full, scored = max(rows, tokens), limits.logit_rows
    vocabulary = plan.config.vocab_size
    entries = entry_room(most_entries(plan, limits))
    everything = Choice(False, entries, mask_words(vocabulary), MOST_TOP)
    plain = tuple(
        Sizes(t, b, b, most, choice)
        for t, b in ((full, 1), (full, rows), (rows, rows))
        for choice in (GREEDY, SAMPLED)
    )
    return (*plain, Sizes(full, rows, scored, most, everything))


def most_entries(plan: ModelPlan, limits: StepLimits) -> int:
    """Logits that one step can change one by one: a request singles out what it has seen."""
    one = min(plan.config.vocab_size, 2 * plan.context_length)
    return min(limits.max_running * one, MOST_ENTRIES)


def largest_programs(plan: ModelPlan, limits: StepLimits, decide: Decide) -> list[Program]:
    """The programs of the largest sizes. Raises MissingOperator, unless `decide` records it."""
    return [trace_step(plan, sizes, 2, decide) for sizes in largest_sizes(plan, limits)]


def workspace_bytes(plan: ModelPlan, limits: StepLimits, decide: Decide) -> tuple[int, int]:
    """Scratch of the largest program, and staging of the largest step."""
    return workspace_of(plan, limits, largest_programs(plan, limits, decide))


def workspace_of(
    plan: ModelPlan, limits: StepLimits, programs: Sequence[Program]
) -> tuple[int, int]:
    """The same of programs that were traced already, by `largest_programs`."""
    arena = max(plan_arena(program).nbytes for program in programs)
    states = plan.states is not None
    staging = max(staging_words(s, states=states) for s in largest_sizes(plan, limits))
    return arena, 4 * staging


LEAST_INTERVAL = 512
"""Positions between two snapshots of a long prompt at least: each is as large as many pages."""

SNAPSHOTS = 2
"""Snapshots of recurrent state for each request that may run, where there is room enough."""

SNAPSHOT_SHARE = 0.25
"""Share of the memory beside running requests' state that snapshots may take."""


def plan_states(plan: ModelPlan, largest: int, budget: int, running: int, *, keep: bool) -> int:
    """Slots of recurrent state: the sink, one a running request, snapshots; 0 for none.

    largest: bytes of the device's largest block. budget: bytes for all. Raises NotEnoughMemory.
    """
    group = plan.states
    if group is None:
        return 0
    least, most = 1 + running, largest // group.largest_part
    if least * group.slot_bytes > budget or least > most:
        raise NotEnoughMemory(
            f"not enough memory: the recurrent state of {running} requests needs "
            f"{_mib(least * group.slot_bytes)}, {_mib(group.slot_bytes)} each; {_mib(budget)} are "
            f"left, the largest block is {_mib(largest)}. Lower --max-running-requests"
        )
    room = int((budget - least * group.slot_bytes) * SNAPSHOT_SHARE) // group.slot_bytes
    return least + min(SNAPSHOTS * running if keep else 0, room, most - least)


def plan_memory(
    plan: ModelPlan,
    info: MemoryInfo,
    workspace: int,
    limits: StepLimits,
    wishes: MemoryWishes,
    *,
    unified: bool,
) -> MemoryPlan:
    """Share out the memory. Raises NotEnoughMemory when one sequence of the context asked for,
    or no useful one at all, would fit."""
    fraction = wishes.fraction or 1 - HEADROOM
    page_bytes = plan.group.page_bytes
    spare = int(info.total * fraction) - info.used
    spare = min(spare, info.free) - plan.weight_bytes - workspace
    share = UNIFIED_SHARE if unified and wishes.fraction is None else 1.0
    budget = int(spare * share)
    running = limits.max_running
    slots = plan_states(plan, info.largest, budget, running, keep=wishes.snapshots)
    states = slots * plan.states.slot_bytes if plan.states else 0
    budget -= states
    pages = max(budget // page_bytes - 1, 0)
    wanted = limits.max_running * plan.most_pages
    if wishes.max_total_tokens is not None:
        wanted = min(wanted, -(-wishes.max_total_tokens // plan.group.page_size))
    # A layer's keys, and its values, lie in one block each: where the device's blocks are bounded,
    # a layer has no more pages than fit into one.
    block_pages = max(info.largest // plan.group.layer_page_bytes - 1, 0)
    pages = max(min(pages, wanted, block_pages), 0)
    longest = min(plan.context_length, pages * plan.group.page_size)
    found = MemoryPlan(
        info,
        plan.weight_bytes,
        workspace,
        page_bytes,
        pages,
        block_pages,
        info.total - int(info.total * fraction),
        longest,
        states,
        max(slots - 1 - running, 0),
    )
    _check(plan, found, wishes, share)
    return found


def _check(plan: ModelPlan, found: MemoryPlan, wishes: MemoryWishes, share: float) -> None:
    """share: of the memory that is spare, what the cache may take."""
    least = plan.context_length if wishes.context_asked else min(plan.context_length, 32)
    if found.longest >= least:
        return
    numbers = ", ".join(f"{name} {_mib(n)}" for name, n in found.table().items())
    fixed, pages = found.weights + found.workspace, -(-least // plan.group.page_size)
    if fixed > found.info.free - found.headroom:
        spare = math.ceil((pages + 1) * found.page_bytes / share)
        raise NotEnoughMemory(
            f"not enough memory: weights and workspace need {_mib(fixed)}; "
            f"{_mib(found.info.free)} are free, {_mib(found.headroom)} of them headroom "
            f"({numbers}). A total of {_mib(_enough(found, fixed + spare))} would be enough for "
            f"{least} tokens; take a smaller model or format{_or_more(fixed, found)}"
        )
    need = pages * found.page_bytes
    raise NotEnoughMemory(
        f"not enough memory for one sequence of {least} tokens: its cache needs {_mib(need)}, "
        f"room is left for {found.longest} tokens ({numbers}; largest block "
        f"{_mib(found.info.largest)}). Lower --context-length, or raise "
        "--mem-fraction-static or --max-total-tokens"
    )


def _enough(found: MemoryPlan, needed: int) -> int:
    """Bytes in all, in whole MiB, so that `needed` ones are there beside as large a headroom."""
    share_used = 1 - found.headroom / max(found.info.total, 1)
    return math.ceil((found.info.used + needed) / share_used / 2**20) * 2**20


def _or_more(fixed: int, found: MemoryPlan) -> str:
    """The other way out, where it is one."""
    return ", or raise --mem-fraction-static" if fixed < found.info.free else ""


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"


def cache_limits(
    plan: ModelPlan, memory: MemoryPlan, limits: StepLimits, chunk: int
) -> CacheLimits:
    """What the scheduler may hand out."""
    return CacheLimits(
        pages=memory.pages,
        page_size=plan.group.page_size,
        context_length=memory.longest,
        max_running=limits.max_running,
        step_tokens=limits.step_tokens,
        chunk=chunk,
        logit_rows=limits.logit_rows,
        recurrent=plan.states is not None,
        snapshots=memory.snapshots,
        snapshot_every=snapshot_interval(plan.group.page_size, chunk),
    )


def snapshot_interval(page_size: int, chunk: int) -> int:
    """Positions between two snapshots of a long prompt: whole pages, and a whole chunk, so that
    no step computes less of a prompt for them."""
    return -(-max(chunk, LEAST_INTERVAL) // page_size) * page_size
