"""What can happen to a scheduler, drawn at random: the world that it lives in, and its events.

Everything is drawn from a `random.Random`, be it one of a seed or one that hypothesis steers, so
there is one place where a setting or an event is added: `draw_world` and `draw_event`. An event
means something in every state of a scheduler, so any part of a list of events is one too, and a
failing list can be shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from msgspec import structs
from table_model import VOCABULARY, ask, limits

from anychip.plan import CacheLimits
from anychip.request import GrammarSpec, Request
from anychip.schedule.eviction import EVICTION_POLICIES
from anychip.schedule.hooks import SchedulerHooks
from anychip.schedule.options import SchedulerOptions
from anychip.schedule.policy import POLICIES
from anychip.schedule.retraction import RETRACTIONS

SMALL_PAGES, LARGE_PAGES = (1, 2, 3, 4, 7), (8, 16, 32, 64, 128)
MOST_ALIVE = 24
"""Requests that wait or run; more than that are not added, or a life would never be drained."""

RECURRENT = 0.3
"""Share of the worlds whose model keeps recurrent state."""

GRAMMAR = GrammarSpec("regex", "whatever the table model forces")

BETWEEN_STEPS, IN_FLIGHT = {"plan"}, {"ahead", "commit", "fail", "spoil", "rule_out", "mismatch"}


class Event(NamedTuple):
    """kind: a method of `Life`. rows: indices modulo the step's rows.

    seconds: what the clock goes on by, or what a step took. reached: see `LifeRunner.fail`.
    """

    kind: str
    request: Request | None = None
    name: str = ""
    rows: tuple[int, ...] = ()
    reached: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class World:
    """What one life goes through. options: what the scheduler takes by name.

    overlap: whether steps are planned behind the one in flight, and whether they run at once
    ("eager") or when their result is wanted ("lazy").
    """

    limits: CacheLimits
    options: SchedulerOptions
    stems: tuple[tuple[int, ...], ...]
    weights: dict[str, int] = field(compare=False)
    overlap: str = ""

    @property
    def positions(self) -> int:
        """What the whole cache holds."""
        return self.limits.pages * self.limits.page_size


def draw_world(rng: Random, page_sizes: Sequence[int]) -> World:
    """Mostly small and crowded: that is where the rare paths are."""
    size = rng.choice(page_sizes)
    context = rng.choice([4, 24, 64, 96, 96]) if size < 8 else rng.choice([24, 96, 2 * size + 9])
    # From less than one sequence to room for several.
    positions = rng.choice([context // 2, context, context, 2 * context, 4 * context])
    chunk = rng.choice([1, 3, 16, 64, 256])
    step_tokens = rng.choice([chunk, chunk, chunk + 5, 4, 64])
    world = World(
        limits=limits(
            pages=max(1, -(-positions // size)),
            page_size=size,
            context_length=context,
            max_running=rng.choice([1, 2, 4, 8]),
            step_tokens=step_tokens,
            chunk=chunk,
            host_slots=rng.choice([0, 0, 0, 3, 40]),
            logit_rows=rng.choice([0, 0, 9, 64]),
        ),
        options=draw_options(rng, min(chunk, step_tokens)),
        stems=tuple(draw_tokens(rng, context) for _ in range(rng.choice([1, 2, 4]))),
        weights=draw_weights(rng),
        overlap=rng.choice(["", "eager", "lazy"]),
    )
    return recurrent(rng, world) if rng.random() < RECURRENT else world


def recurrent(rng: Random, world: World) -> World:
    """The same for a model with recurrent state, which host memory does not hold."""
    room = structs.replace(
        world.limits,
        host_slots=0,
        recurrent=True,
        snapshots=rng.choice([0, 1, 2, 5, 20]),
        snapshot_every=world.limits.page_size * rng.choice([1, 2, 5, 20]),
    )
    return replace(world, limits=room)


def draw_options(rng: Random, chunk: int) -> SchedulerOptions:
    """What the scheduler is made with, beside its limits."""
    # A token a step, and all computed again after each: that ends, but not soon.
    every = [0, 0, 0, 1, 2, 5] if chunk >= 16 else [0, 0, 0, 30]
    hooks = SchedulerHooks(
        force_retract_every=rng.choice(every),
        force_miss=rng.random() < 0.15,
    )
    return SchedulerOptions(
        radix=rng.random() < 0.85,
        policy=rng.choice([*POLICIES, "priority"]),
        eviction=rng.choice([*EVICTION_POLICIES]),
        retraction=rng.choice(RETRACTIONS),
        preempt_from=rng.choice([None, 1, 10]),
        conservativeness=rng.choice([0.05, 1.0, 1.0, 3.0]),
        headroom_tokens=rng.choice([1, 1, 32]),
        max_queued=rng.choice([None, None, None, None, 1, 4]),
        max_queued_tokens=rng.choice([None, None, None, 60]),
        waiting_timeout_s=rng.choice([None, None, 5.0]),
        running_timeout_s=rng.choice([None, None, 5.0]),
        target_tpot_s=rng.choice([None, None, 0.01]),
        jump_forward=rng.random() < 0.8,
        hooks=hooks,
    )


def draw_weights(rng: Random) -> dict[str, int]:
    """How often each event comes about, beside the others that are possible at the time."""
    return {
        "plan": 100,
        "commit": 100,
        "ahead": 150,
        "add": rng.choice([5, 15, 40]),
        "draws": rng.choice([0, 0, 8]),
        "turn": rng.choice([0, 5, 15]),
        "abort": rng.choice([0, 2, 12]),
        "fail": rng.choice([0, 0, 3]),
        "spoil": rng.choice([0, 0, 3]),
        "rule_out": rng.choice([0, 0, 3]),
        "again": rng.choice([0, 2]),
        "flush": rng.choice([0, 2]),
        "collect": rng.choice([0, 4]),
        "mismatch": rng.choice([0, 2]),
        "wait": rng.choice([0, 4, 8]),
    }


def draw_tokens(rng: Random, count: int) -> tuple[int, ...]:
    """Of few kinds, so that prompts which are not meant to share a beginning sometimes do."""
    return tuple(rng.randint(0, 3) for _ in range(count))


def draw_length(rng: Random, world: World) -> int:
    """From one token to more than fits, and whatever is next to a border."""
    size, context = world.limits.page_size, world.limits.context_length
    borders = (1, size, context - 1, world.positions)
    if rng.random() < 0.3:
        return max(0, rng.choice(borders) + rng.choice([-1, 0, 0, 1]))
    return rng.randint(1, max(1, min(context, world.positions) * 3 // 4))


def draw_request(rng: Random, world: World, name: str, prompt: Sequence[int] = ()) -> Request:
    """A request, which may be one that is refused. prompt: what it begins with."""
    length = draw_length(rng, world)
    start = prompt or rng.choice(world.stems)
    kept = start if prompt else start[: rng.randint(0, length)]
    tokens = [*kept, *draw_tokens(rng, length - len(kept))]
    if rng.random() < 0.01:
        tokens += [rng.choice([-1, 2**31])]
    return ask(
        name,
        tokens,
        rng.choice([1, 1, 2, 7, 20, 40, 70, 10**6, 0]),
        temperature=rng.choice([0.0, 0.0, 0.9]),
        seed=rng.randint(0, 3),
        draw=rng.choice([0, 0, 1]),
        ignore_eos=rng.random() < 0.8,
        stop_token_ids=draw_stop(rng),
        namespace=rng.choice(["", "", "", "a", "b"]),
        priority=draw_priority(rng, world.options),
        **draw_wishes(rng, len(tokens)),
    )


def draw_wishes(rng: Random, length: int) -> dict[str, object]:
    """Mostly none: probabilities of a prompt or an answer, a grammar, logits that are shaped."""
    kind, wishes = rng.randrange(16), {}
    if kind in (0, 1):
        wishes["prompt_logprobs"] = rng.choice([0, 2])
        wishes["prompt_logprobs_from"] = rng.choice([1, 1, rng.randint(1, max(1, length) + 1)])
    if kind in (1, 2):
        wishes["logprobs"] = rng.choice([0, 2])
    if kind in (2, 3, 4, 5):
        wishes["grammar"] = GRAMMAR
    if kind == 6:
        wishes["logit_bias"] = ((3, 1.0),)
    return wishes


def draw_priority(rng: Random, options: SchedulerOptions) -> int:
    """Mostly none where nobody looks at it: there it is refused."""
    looked_at = "priority" in (options.policy, options.retraction)
    return rng.choice([0, 0, -1, 3, 20]) if looked_at or rng.random() < 0.02 else 0


def draw_stop(rng: Random) -> tuple[int, ...]:
    """Mostly none: it ends a request early."""
    return () if rng.random() < 0.8 else (rng.randrange(VOCABULARY),)


def draw_event(rng: Random, world: World, life: Any) -> list[Event]:
    """What happens next: one event, or the `n` requests of one prompt."""
    impossible = BETWEEN_STEPS if life.flights else IN_FLIGHT
    kinds = [kind for kind in world.weights if kind not in impossible]
    (kind,) = rng.choices(kinds, [world.weights[kind] for kind in kinds])
    if kind in ("add", "draws", "turn"):
        return draw_arrival(rng, world, life, kind) if len(life.alive) < MOST_ALIVE else []
    if kind in ("abort", "again"):
        return draw_named(rng, life, kind)
    if kind in ("spoil", "rule_out"):
        return [Event(kind, rows=tuple(rng.randrange(8) for _ in range(rng.choice([1, 1, 3]))))]
    if kind in ("commit", "wait"):
        return [Event(kind, seconds=draw_seconds(rng, kind))]
    return [Event(kind, reached=rng.random() < 0.5)]


def draw_named(rng: Random, life: Any, kind: str) -> list[Event]:
    """What happens to one request, now and then to one that has ended."""
    names = sorted(life.session.requests if rng.random() < 0.1 else life.alive)
    if not names:
        return []
    name = rng.choice(names)
    return [Event(kind, name=name, request=life.session.requests[name])]


def draw_seconds(rng: Random, kind: str) -> float | None:
    """What a step took, or by how much the clock jumps: on, or back, which no clock should."""
    choices = [None, 0.001, 0.02, 1.0] if kind == "commit" else [0.1, 1.0, 4.0, 30.0, -2.0]
    return rng.choice(choices)


def draw_arrival(rng: Random, world: World, life: Any, kind: str) -> list[Event]:
    """A request; the choices of `n`; or a next turn, on what an earlier one answered."""
    name = f"r{len(life.session.requests)}-{life.events}"
    if kind == "turn" and life.ended:
        before = life.session.requests[rng.choice(life.ended)]
        prompt = (*before.prompt, *life.session.tokens[before.id], *draw_tokens(rng, 2))
        return [Event("add", draw_request(rng, world, name, prompt))]
    request = draw_request(rng, world, name)
    if kind != "draws":
        return [Event("add", request)]
    return [
        Event("add", ask_for_draw(request, f"{name}.{draw}", draw))
        for draw in range(rng.choice([2, 4]))
    ]


def ask_for_draw(request: Request, name: str, draw: int) -> Request:
    """One choice of `n`: another draw of the same seed."""
    params = request.params
    return ask(
        name,
        list(request.prompt),
        params.max_tokens,
        temperature=0.9,
        seed=params.seed,
        draw=draw,
        namespace=request.namespace,
    )
