"""The sizes that a step's program is traced and bound for."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.plan import StepPlan


@dataclass(frozen=True)
class Sizes:
    """T tokens, B rows, R rows that sample, M pages a row; greedy: no row needs noise.

    M grows in powers of two, so that a decoding sequence meets few different programs.
    """

    tokens: int
    rows: int
    samples: int
    pages: int
    greedy: bool = True


KEPT = 256
"""Sizes whose programs and staging are kept, the least recently used forgotten beyond them."""

SMALLEST_TABLE = 8
"""Pages a row at least: a program is bound anew only when a table doubles."""


def sizes_of(plan: StepPlan, page_size: int, most_pages: int) -> Sizes:
    """Sizes of one step; `most_pages` a row is what the context length needs."""
    longest = max(row.start + len(row.tokens) for row in plan.rows)
    sampling = [row for row in plan.rows if row.sample]
    return Sizes(
        tokens=plan.token_count,
        rows=len(plan.rows),
        samples=len(sampling),
        pages=table_width(-(-longest // page_size), most_pages),
        greedy=all(row.temperature == 0 for row in sampling),
    )


def table_width(pages: int, most_pages: int) -> int:
    """The next power of two, at least SMALLEST_TABLE and at most `most_pages`."""
    return min(max(SMALLEST_TABLE, 1 << (pages - 1).bit_length()), most_pages)
