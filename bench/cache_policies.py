"""How much of a trace's prompts the prefix cache finds, by eviction policy and by room.

    .venv/bin/python bench/cache_policies.py TRACE --out DIR [--policies …] [--rooms …]

TRACE: JSON lines with timestamp, input_length, output_length and hash_ids of 512-token blocks, as
the Mooncake project publishes them. Requests go through the real scheduler in virtual time, so
results repeat exactly and no chip is needed. The trace is replayed several times on one cache,
with the same shape and other blocks each time: a policy that never forgets shows it there.
DIR gets cache_policies.json, .md and .png.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from prefixes.plots import INSTALL, draw
from prefixes.replay import Outcome, Replay, StepCost
from prefixes.results import Point, Results, table
from prefixes.trace import Prompt, best_hits, moved, shrunk

from anychip.bench.load.mooncake import read_blocks
from anychip.bench.load.trace_file import TraceError
from anychip.plan import CacheLimits
from anychip.schedule.eviction import EVICTION_POLICIES
from anychip.schedule.options import SchedulerOptions

ROOMS = (100, 75, 50, 35, 25, 15, 10, 7, 5, 3, 2)
DEFAULT_POLICIES = ("lru", "lfu", "slru")
STEP_TOKENS, RUNNING = 512, 64


def above_zero(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def whole(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE")
    add("--out", type=Path, required=True, help="folder for the results")
    add("--requests", type=whole, metavar="N", help="the trace's first N alone [all]")
    add("--divide", type=whole, default=16, metavar="N", help="divisor of lengths [%(default)s]")
    add("--page-size", type=whole, default=16, metavar="N", help="tokens [%(default)s]")
    add("--times", type=whole, default=3, metavar="N", help="replays on one cache [%(default)s]")
    add(
        "--policies",
        nargs="+",
        choices=tuple(EVICTION_POLICIES),
        default=DEFAULT_POLICIES,
        help="[lru lfu slru; without priorities in the trace `priority` is lru]",
    )
    many = partial(add, type=above_zero, metavar="X")
    many("--rooms", nargs="+", default=ROOMS, help="%% of all that could be kept [100 to 2]")
    many("--step-ms", default=10.0, help="virtual time of a step [%(default)s]")
    many("--token-ms", default=0.1, help="and of each token in it [%(default)s]")
    return parser.parse_args()


def say(text: str) -> None:
    """Tell at once."""
    print(text, file=sys.stderr, flush=True)


def progress(name: str, total: int) -> Callable[[int], None]:
    """A line every five seconds."""
    last = time.monotonic()

    def told(done: int) -> None:
        nonlocal last
        if time.monotonic() - last > 5:
            last = time.monotonic()
            say(f"  {name}: {done} of {total} requests")

    return told


class Bench:
    """The replays of one trace."""

    def __init__(self, prompts: list[Prompt], asked: argparse.Namespace) -> None:
        self._prompts, self._asked = prompts, asked
        self._cost = StepCost(asked.step_ms / 1000, asked.token_ms / 1000)
        self._total = sum(prompt.length for prompt in prompts)

    def results(self) -> Results:
        """Replay with room for all; the points come later."""
        asked = self._asked
        ample = 2 * sum(p.length + p.output for p in self._prompts) // asked.page_size + 64
        (free,) = self.replay("lru", ample, "room for all", times=1)
        return Results(
            trace=asked.trace.name,
            requests=len(self._prompts),
            divisor=asked.divide,
            page_size=asked.page_size,
            times=asked.times,
            step_seconds=self._cost.step,
            token_seconds=self._cost.token,
            prompt_tokens=self._total,
            best_rate=best_hits(self._prompts, asked.page_size) / self._total,
            unbounded_rate=free.hit_rate,
            every_page=free.kept_pages,
            policies=tuple(asked.policies),
        )

    def replay(self, policy: str, pages: int, name: str, times: int) -> list[Outcome]:
        """One scheduler, the trace so many times. Raises RuntimeError, see `Replay`."""
        longest = max(prompt.length + prompt.output for prompt in self._prompts)
        limits = CacheLimits(
            pages=pages,
            page_size=self._asked.page_size,
            context_length=longest + 1,
            max_running=RUNNING,
            step_tokens=STEP_TOKENS,
            chunk=STEP_TOKENS,
        )
        replay = Replay(limits, SchedulerOptions(eviction=policy), self._cost)
        told = progress(name, len(self._prompts))
        return [replay.run(moved(self._prompts, number), told) for number in range(times)]

    def point(self, results: Results, policy: str, room: float) -> Point:
        """One policy at one room, a share of `results.every_page`."""
        pages = max(1, int(results.every_page * room))
        name = f"{policy} at {100 * room:g} %"
        outcomes = self.replay(policy, pages, name, results.times)
        return Point(
            policy=policy,
            room=room,
            pages=pages,
            first_rate=outcomes[0].hit_rate,
            last_rate=outcomes[-1].hit_rate,
            evicted_pages=sum(outcome.evicted_pages for outcome in outcomes),
            retractions=sum(outcome.retractions for outcome in outcomes),
        )


def main() -> None:
    """Replay, write, plot."""
    asked = arguments()
    try:
        prompts = shrunk(read_blocks(asked.trace, asked.requests), asked.divide)
    except (TraceError, OSError) as error:
        raise SystemExit(str(error)) from error
    asked.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(prompts, asked)
    results = bench.results()
    say(f"best possible {results.best_rate:.4%}, with room for all {results.unbounded_rate:.4%}")
    for room in sorted({share / 100 for share in asked.rooms}, reverse=True):
        for policy in results.policies:
            try:
                point = bench.point(results, policy, room)
            except RuntimeError as error:
                raise SystemExit(f"{policy} at {100 * room:g} %: {error}") from error
            results.points.append(point)
            say(f"{policy} at {100 * room:g} %: {point.first_rate:.2%}, {point.last_rate:.2%}")
    written = msgspec.json.format(msgspec.json.encode(results))
    (asked.out / "cache_policies.json").write_bytes(written + b"\n")
    (asked.out / "cache_policies.md").write_text(table(results) + "\n")
    try:
        draw(results, asked.out / "cache_policies.png")
    except ModuleNotFoundError:
        say(INSTALL)


if __name__ == "__main__":
    main()
