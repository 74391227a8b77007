"""How many layers a model has, and which differ, where a family says so by a period."""

from __future__ import annotations

from anychip.model.errors import CheckpointError
from anychip.model.fields import Fields

MOST_LAYERS = 1 << 12


def layer_count(read: Fields, key: str) -> int:
    """How many layers there are: bounded before anything is made of each.

    Raises CheckpointError.
    """
    layers = read.integer(key)
    if not 0 < layers <= MOST_LAYERS:
        raise CheckpointError(f"layers is {layers}; 1 to {MOST_LAYERS} are possible")
    return layers


def all_but_every(period: int, layers: int) -> tuple[bool, ...]:
    """True for each layer but every period-th: period - 1 of them, then one that is not.

    Raises CheckpointError for a period that is not positive.
    """
    if period < 1:
        raise CheckpointError(f"every {period}th layer is to differ; a positive number is needed")
    return tuple((i + 1) % period != 0 for i in range(layers))
