"""Which layers differ from the others, where a family says so by a period."""

from __future__ import annotations

from anychip.model.errors import CheckpointError


def all_but_every(period: int, layers: int) -> tuple[bool, ...]:
    """True for each layer but every period-th: period - 1 of them, then one that is not.

    Raises CheckpointError for a period that is not positive.
    """
    if period < 1:
        raise CheckpointError(f"every {period}th layer is to differ; a positive number is needed")
    return tuple((i + 1) % period != 0 for i in range(layers))
