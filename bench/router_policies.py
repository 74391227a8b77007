"""What the router's policies come to on a trace: hits, balance, waiting, by policy and workers.

    .venv/bin/python bench/router_policies.py TRACE [--workers 2 4 8] [--speed 8] [--json FILE]

TRACE: JSON lines with timestamp, input_length, output_length and hash_ids of 512-token blocks, as
the Mooncake project publishes them. Each worker is the real scheduler with its prefix cache, in
virtual time: no chip computes anything, and a run gives the same numbers everywhere.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from command_line import count, seconds
from prefixes.fleet import Shared, Worker, share_out
from prefixes.replay import StepCost
from prefixes.trace import Prompt, best_hits, shrunk
from race.figures import percentile

from anychip.bench.load.mooncake import TraceError, read_blocks
from anychip.plan import CacheLimits
from anychip.router.policies import POLICIES, policy_named

STEP_TOKENS = 512
COMPARED = tuple(name for name in POLICIES if name != "consistent")  # the trace has no keys
HEAD = (
    "| workers | policy | hit rate | of the possible | busiest worker | first token, mean | p99 |\n"
    "|---|---|---|---|---|---|---|"
)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE")
    add("--requests", type=count, metavar="N", help="the trace's first N alone [all]")
    add("--workers", type=count, nargs="+", default=[2, 4, 8], metavar="N", help="[2 4 8]")
    add(
        "--policies",
        nargs="+",
        choices=tuple(POLICIES),
        default=COMPARED,
        help="[all without a key]",
    )
    add("--divide", type=count, default=16, metavar="N", help="divisor of lengths [%(default)s]")
    add("--page-size", type=count, default=16, metavar="N", help="tokens [%(default)s]")
    add("--window", type=count, default=32, metavar="N", help="calls at once [%(default)s]")
    add("--room", type=count, default=200_000, metavar="N", help="tokens a cache [%(default)s]")
    add("--speed", type=seconds, default=8.0, metavar="X", help="times as fast [%(default)s]")
    add("--json", type=Path, metavar="FILE", help="the figures as JSON too")
    return parser.parse_args()


def faster(prompts: list[Prompt], speed: float) -> list[Prompt]:
    """The same calls with less time between them."""
    return [msgspec.structs.replace(prompt, at=prompt.at / speed) for prompt in prompts]


def fleet(size: int, prompts: list[Prompt], asked: argparse.Namespace) -> list[Worker]:
    """So many equal workers with empty caches."""
    longest = max(prompt.length + prompt.output for prompt in prompts)
    limits = CacheLimits(
        pages=max(asked.room, 2 * longest) // asked.page_size + 1,
        page_size=asked.page_size,
        context_length=longest + 1,
        max_running=asked.window,
        step_tokens=STEP_TOKENS,
        chunk=STEP_TOKENS,
    )
    return [Worker(f"w{place}", limits, StepCost()) for place in range(size)]


def row(size: int, policy: str, found: Shared, best: float) -> str:
    """One line of the table."""
    first = found.first_token_s
    cells = (
        str(size),
        policy,
        f"{found.hit_rate:.2%}",
        f"{found.hit_rate / best:.0%}",
        f"{found.busiest:.2f} x the mean",
        f"{1000 * sum(first) / len(first):,.0f} ms",
        f"{1000 * percentile(first, 0.99):,.0f} ms",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Share the trace out by every policy, and tell."""
    asked = arguments()
    try:
        calls = read_blocks(asked.trace, asked.requests)
        prompts = faster(shrunk(calls, asked.divide), asked.speed)
    except (TraceError, OSError) as error:
        raise SystemExit(str(error)) from error
    total = sum(prompt.length for prompt in prompts)
    best = best_hits(prompts, asked.page_size) / total
    print(f"{len(prompts)} calls, {total:,} prompt tokens; possible hits {best:.2%}\n")
    print(HEAD, flush=True)
    found: dict[str, Shared] = {}
    for size in asked.workers:
        for policy in asked.policies:
            shared = share_out(prompts, policy_named(policy), fleet(size, prompts, asked))
            found[f"{policy} {size}"] = shared
            print(row(size, policy, shared, best), flush=True)
    if asked.json:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


if __name__ == "__main__":
    main()
