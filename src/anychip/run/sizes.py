"""The sizes that a step's program is traced and bound for."""

from __future__ import annotations

from typing import NamedTuple

from anychip.plan import Row, StepPlan
from anychip.request import NO_LOGPROBS


class Choice(NamedTuple):
    """How the tokens of a step are chosen, and what is told of them.

    greedy: no row needs noise. entries: logits that are changed one by one, K of all rows
    together. mask_words: words of a row's mask, where some tokens are ruled out. top: likeliest
    tokens told beside each row's own; NO_LOGPROBS: no probability is told.
    """

    greedy: bool = True
    entries: int = 0
    mask_words: int = 0
    top: int = NO_LOGPROBS


GREEDY = Choice()
SAMPLED = Choice(greedy=False)


class Sizes(NamedTuple):
    """T tokens, B rows, R of them or of their positions with logits, M pages a row.

    M grows in powers of two, so that a decoding sequence meets few different programs.
    """

    tokens: int
    rows: int
    samples: int
    pages: int
    choice: Choice = GREEDY


KEPT = 256
"""Sizes whose programs and staging are kept, the least recently used forgotten beyond them."""

SMALLEST_TABLE = 8
"""Pages a row at least: a program is bound anew only when a table doubles."""


MOST_TOP = 20
"""Likeliest tokens that can be told beside a token."""

_TOPS = (NO_LOGPROBS, 0, 1, 5, MOST_TOP)
LEAST_ENTRIES = 256


def sizes_of(
    plan: StepPlan, page_size: int, most_pages: int, *, entries: int = 0, mask_words: int = 0
) -> Sizes:
    """Sizes of one step; `most_pages` a row is what the context length needs.

    entries, mask_words: what those rows need whose logits are shaped.
    """
    if plan.plain:
        return plain_sizes(plan, page_size, most_pages)
    longest = max(row.start + len(row.tokens) for row in plan.rows)
    wanted = max(_top(row) for row in plan.rows)
    return Sizes(
        tokens=plan.token_count,
        rows=len(plan.rows),
        samples=sum(row.logit_rows for row in plan.rows),
        pages=table_width(-(-longest // page_size), most_pages),
        choice=Choice(
            greedy=all(row.temperature == 0 for row in plan.rows if row.sample),
            entries=entry_room(entries),
            mask_words=mask_words,
            top=min(top for top in _TOPS if top >= wanted),
        ),
    )


def plain_sizes(plan: StepPlan, page_size: int, most_pages: int) -> Sizes:
    """Sizes of one that is plain."""
    count, last, choice = len(plan.rows), 0, GREEDY
    for row in plan.rows:
        if row.start > last:
            last = row.start
        if row.temperature:
            choice = SAMPLED
    return Sizes(count, count, count, table_width(last // page_size + 1, most_pages), choice)


def _top(row: Row) -> int:
    top = row.logprobs if row.sample else NO_LOGPROBS
    return max(top, row.score.top) if row.score else top


def entry_room(entries: int) -> int:
    """The next power of four, at least LEAST_ENTRIES, so that growing penalties meet few programs;
    0 for none."""
    room = LEAST_ENTRIES if entries else 0
    while room < entries:
        room *= 4
    return room


def table_width(pages: int, most_pages: int) -> int:
    """The next power of two, at least SMALLEST_TABLE and at most `most_pages`."""
    return min(max(SMALLEST_TABLE, 1 << (pages - 1).bit_length()), most_pages)
