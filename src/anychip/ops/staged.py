"""Staging: a call's operands are copied to where they can be computed, and its results back.

For implementations that cannot reach the call's memory: the host rung's, and those borrowed from
another chip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from anychip.contract.cache import CacheView, latent_view
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, Launch, Value
from anychip.contract.tensor import Buffer, IndexPair, Tensor
from anychip.contract.weights import Weight


class Place(Protocol):
    """Where operands are computed."""

    def allocate(self, nbytes: int) -> Buffer:
        """Memory for one operand of a call."""

    def weight(self, weight: Weight, stage: Stage) -> Weight:
        """What stands for a weight there; `stage.tensor` copies what has to be copied."""

    def put(self, target: Tensor, read: Callable[[memoryview], None]) -> None:
        """Fill the bytes that `target` spans with what `read` writes into host memory."""

    def get(self, source: Tensor) -> memoryview:
        """The bytes that `source` spans, once the work queued there is done."""


class Stage:
    """Twins of one call's tensors: the same strides over a copy of the bytes that they span.

    near: the memory of the call. moved: told the bytes of every copy.
    """

    def __init__(self, near: Memory, place: Place, moved: Callable[[int], None]) -> None:
        self._near, self._place, self._moved = near, place, moved
        self._twins: dict[Tensor, Tensor] = {}

    def operands(self, values: Mapping[str, Value | None]) -> dict[str, Value | None]:
        """Twins of all inputs; these are what a launch copies there."""
        return {name: self._operand(value) for name, value in values.items()}

    def _operand(self, value: Value | None) -> Value | None:
        if isinstance(value, CacheView):
            return self._cache(value)
        if isinstance(value, IndexPair):
            return IndexPair(value.host, self.tensor(value.device))
        if isinstance(value, Weight):
            return self._place.weight(value, self)
        return None if value is None else self.tensor(value)

    def _cache(self, view: CacheView) -> CacheView:
        if view.spec.group.latent:
            return latent_view(view.spec, self.tensor(view.k))
        return CacheView(view.spec, self.tensor(view.k), self.tensor(view.v))

    def tensor(self, tensor: Tensor) -> Tensor:
        """The twin of a tensor, made on first use."""
        if tensor not in self._twins:
            buffer = self._place.allocate(tensor.extent_bytes)
            self._twins[tensor] = replace(tensor, buffer=buffer, offset=0)
        return self._twins[tensor]

    def launch(self, call: Call, inner: Launch, outputs: Mapping[str, Tensor]) -> Launch:
        """Copy every twin made so far in, run `inner`, copy results and written inputs back.

        outputs: by name, where `inner` leaves them.
        """
        reads = list(self._twins.items())
        written = [call.inputs[name] for name in CATALOGUE[call.spec.op].writes]
        writes = [(t, self._twins[t]) for value in written for t in _tensors(value)]
        writes += [(tensor, outputs[name]) for name, tensor in call.outputs.items()]

        def launch() -> None:
            for tensor, twin in reads:
                self._bring(tensor, twin)
            inner()
            for tensor, twin in writes:
                self._give_back(tensor, twin)

        return launch

    def _bring(self, tensor: Tensor, twin: Tensor) -> None:
        if tensor.size:
            self._place.put(twin, lambda target: self._near.copy_out(window(tensor), target))
            self._moved(tensor.extent_bytes)

    def _give_back(self, tensor: Tensor, twin: Tensor) -> None:
        if tensor.size:
            self._near.copy_in(window(tensor), self._place.get(twin))
            self._moved(tensor.extent_bytes)


def window(tensor: Tensor) -> Tensor:
    """The bytes that a tensor spans, gaps included."""
    shape = (tensor.extent_bytes,)
    return Tensor(shape, DType.UINT8, buffer=tensor.buffer, offset=tensor.offset)


def _tensors(value: Value | None) -> tuple[Tensor, ...]:
    """Tensors behind an input that is written."""
    if isinstance(value, CacheView):
        return value.halves
    assert isinstance(value, Tensor)
    return (value,)
