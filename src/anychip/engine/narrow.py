"""The smallest set of names that makes a difference go away, in few trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Same = Callable[[frozenset[str]], bool]
"""Whether the difference is gone with this set. A trial is expensive."""


def smallest_set(names: Sequence[str], same: Same) -> tuple[str, ...]:
    """Names without any of which the difference comes back, in the order of `names`.

    `same` must hold for all names and not for none. One name costs log2(len(names)) trials, each
    further one as much again: names that only matter together are all found. Where a name can
    make up for another, the one that comes first is found.
    """
    found: list[str] = []
    rest = list(names)
    while not (found and same(frozenset(found))):
        count = _fewest(rest, lambda some: same(frozenset((*found, *some))))
        found.append(rest[count - 1])
        rest = rest[: count - 1]
    return tuple(name for name in names if name in found)


def _fewest(names: Sequence[str], holds: Callable[[Sequence[str]], bool]) -> int:
    """The least n for which `holds(names[:n])`, at least 1; it is known to hold for all."""
    low, high = 1, len(names)
    while low < high:
        middle = (low + high) // 2
        if holds(names[:middle]):
            high = middle
        else:
            low = middle + 1
    return low
