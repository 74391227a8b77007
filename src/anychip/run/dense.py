"""A model's weights on the host, by name, as the chip was given them: for checks of a step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np

from anychip.contract.weights import HostWeight
from anychip.hostops.views import Array
from anychip.model.checkpoint import Checkpoint
from anychip.model.formats import dequantize
from anychip.model.quantize import into_format

DenseByName = Callable[[str], Array]
"""A weight's name in the network -> its values, float32 [N, K]."""

PartsByName = Callable[[str], tuple[HostWeight, ...]]
"""A weight's name in the network -> what the chip's `prepare` took."""

KEPT_BYTES = 256 * 2**20


def parts_reader(checkpoint: Checkpoint, converted: Mapping[str, str] | None = None) -> PartsByName:
    """Reads the parts of a weight, views of the files where possible.

    converted: weight -> the format it is converted or quantized to at load, as in the model's plan.
    The reader raises KeyError for an unknown name, CheckpointError for what cannot be read.
    """
    sources = {source.name: source for source in checkpoint.sources}
    formats = converted or {}

    def parts(name: str) -> tuple[HostWeight, ...]:
        format = formats.get(name)
        if format is None:
            return checkpoint.read(sources[name])
        return tuple(into_format(part, format) for part in checkpoint.parts(sources[name]))

    return parts


def dense_reader(
    checkpoint: Checkpoint,
    converted: Mapping[str, str] | None = None,
    *,
    kept_bytes: int = KEPT_BYTES,
) -> DenseByName:
    """Reads a weight's values, its parts stacked along N; vectors come as (N,).

    kept_bytes: the values used last are kept up to this size. `converted` and errors as in
    `parts_reader`. The arrays are read-only.
    """
    return _Kept(parts_reader(checkpoint, converted), kept_bytes).values


class _Kept:
    """The values used last. Invariant: `_nbytes` is the size of all that is kept."""

    def __init__(self, parts: PartsByName, limit: int) -> None:
        self._parts, self._limit = parts, limit
        self._kept: OrderedDict[str, Array] = OrderedDict()
        self._nbytes = 0

    def values(self, name: str) -> Array:
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        found = np.concatenate([dequantize(part) for part in self._parts(name)])
        found.flags.writeable = False
        self._keep(name, found)
        return found

    def _keep(self, name: str, found: Array) -> None:
        if found.nbytes > self._limit:
            return
        self._kept[name] = found
        self._nbytes += found.nbytes
        while self._nbytes > self._limit:
            self._nbytes -= self._kept.popitem(last=False)[1].nbytes
