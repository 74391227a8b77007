"""What the replays found, as it is written to a file and told in a table."""

from __future__ import annotations

import msgspec


class Point(msgspec.Struct, frozen=True):
    """One policy at one room. room: share of `Results.every_page`. The rates are of prompt
    tokens, of the first and of the last time that the trace was replayed."""

    policy: str
    room: float
    pages: int
    first_rate: float
    last_rate: float
    evicted_pages: int
    retractions: int


class Results(msgspec.Struct):
    """One run of the bench. Lengths are divided by `divisor`; best_rate: an unbounded cache's,
    from the ids alone; every_page: what an unbounded cache holds after the trace."""

    trace: str
    requests: int
    divisor: int
    page_size: int
    times: int
    step_seconds: float
    token_seconds: float
    prompt_tokens: int
    best_rate: float
    unbounded_rate: float
    every_page: int
    policies: tuple[str, ...]
    points: list[Point] = msgspec.field(default_factory=list)


def table(results: Results) -> str:
    """Markdown: a row a room; of each policy the first and the last time."""
    times = ("once", f"time {results.times}")
    heads = [f"{policy}, {time}" for time in times for policy in results.policies]
    rows = [
        f"| room | pages | {' | '.join(heads)} |",
        "|---" * (len(heads) + 2) + "|",
    ]
    for room in dict.fromkeys(point.room for point in results.points):
        found = {point.policy: point for point in results.points if point.room == room}
        rates = [found[name].first_rate for name in results.policies]
        rates += [found[name].last_rate for name in results.policies]
        pages = next(iter(found.values())).pages
        cells = " | ".join(f"{100 * rate:.2f} %" for rate in rates)
        rows.append(f"| {100 * room:g} % | {pages:,} | {cells} |")
    return "\n".join(rows)
