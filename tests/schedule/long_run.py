"""Many lives, one after another, each from a seed; a failing one is replayed and shortened.

python tests/schedule/long_run.py SEED            replays one life
python tests/schedule/long_run.py SEED --shrink   and prints the fewest events that still fail
--large-pages                                     where the failure said so
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from life import Life
from random_life import LARGE_PAGES, SMALL_PAGES, Event, World, draw_event, draw_world

from anychip.schedule.scheduler import Scheduler

Make = Callable[..., Scheduler]
PATHS = (
    "length",
    "stop",
    "abort",
    "abort in flight",
    "failed",
    "not numbers",
    "out of memory",
    "refused",
    "mismatch",
    "flush",
    "cached",
    "retracted",
    "evicted",
    "from host",
    "ahead",
    "scored",
    "forced",
    "ruled out",
    "preempted",
    "waited_too_long",
    "ran_too_long",
)
"""What many lives have to have seen; see `Life.seen`."""
STEPS_OF_A_LIFE = (30, 100, 100, 300, 300, 1000)


@dataclass(frozen=True)
class Failure:
    """A life that went wrong, as far as it went. draining: only after its last event."""

    seed: int
    world: World
    events: tuple[Event, ...]
    steps: int
    error: Exception
    draining: bool = False

    def __str__(self) -> str:
        large = " --large-pages" if self.world.limits.page_size in LARGE_PAGES else ""
        return (
            f"seed {self.seed}, step {self.steps}, event {len(self.events)}: "
            f"{type(self.error).__name__}: {self.error}\n"
            f"replay: python tests/schedule/long_run.py {self.seed}{large} --shrink"
        )


def run_lives(
    first_seed: int, steps: int, page_sizes: Sequence[int], make: Make = Scheduler
) -> Counter[str]:
    """Lives of consecutive seeds until `steps` steps were made; what was seen in them.

    AssertionError names the seed and the command that replays it.
    """
    seen: Counter[str] = Counter()
    seed = first_seed
    while seen["steps"] < steps:
        found = run_life(seed, page_sizes, make)
        if isinstance(found, Failure):
            raise AssertionError(str(found)) from found.error
        seen += found
        seed += 1
    return seen


def run_life(
    seed: int, page_sizes: Sequence[int], make: Make = Scheduler
) -> Counter[str] | Failure:
    """One life; what was seen in it, or how it failed."""
    rng = Random(seed)
    world = draw_world(rng, page_sizes)
    length = rng.choice(STEPS_OF_A_LIFE)
    life, events, draining = Life(world, make), [], False
    try:
        # Bounded: where everything is refused, no step is ever made.
        while life.steps < length and life.events < 20 * length:
            for event in draw_event(rng, world, life):
                events.append(event)
                life.apply(event)
        draining = True
        life.drain()
    except Exception as error:  # noqa: BLE001 (whatever it raises is what was looked for)
        return Failure(seed, world, tuple(events), life.steps, error, draining)
    return life.seen + Counter(steps=life.steps, lives=1)


def fails(failure: Failure, events: Sequence[Event], make: Make) -> Exception | None:
    """What goes wrong in these events, or in the draining after them where that is what failed."""
    life = Life(failure.world, make)
    try:
        for event in events:
            life.apply(event)
        if failure.draining:
            life.drain()
    except Exception as error:  # noqa: BLE001
        return error
    return None


def shrunk(failure: Failure, make: Make = Scheduler) -> Failure:
    """The same failure of fewer events: halves, quarters and so on are left out while it fails."""
    events, error = list(failure.events), failure.error
    size = max(1, len(events) // 2)
    while True:
        at, before = 0, len(events)
        while at < len(events):
            fewer = events[:at] + events[at + size :]
            found = fails(failure, fewer, make)
            if found is None:
                at += size
            else:
                events, error = fewer, found
        if size == 1 and len(events) == before:
            return replace(failure, events=tuple(events), error=error)
        size = max(1, size // 2)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Replay one life of the scheduler.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--large-pages", action="store_true")
    parser.add_argument("--shrink", action="store_true")
    chosen = parser.parse_args(words)
    found = run_life(chosen.seed, LARGE_PAGES if chosen.large_pages else SMALL_PAGES)
    if not isinstance(found, Failure):
        print(f"seed {chosen.seed}: nothing wrong; {dict(found)}")
        return 0
    if chosen.shrink:
        found = shrunk(found)
    print(
        found, found.world.limits, found.world.options, found.world.overlap, *found.events, sep="\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
