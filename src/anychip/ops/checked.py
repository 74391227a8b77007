"""The check interpreter: a bound program, call by call, each compared with the oracle.

Inputs are copied out before a call and outputs are poisoned; the oracle starts from the chip's
own inputs, so an error is found where it is made. Slow: every operand crosses to the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anychip import hostops
from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, Implementation, Value
from anychip.contract.signature import Tier
from anychip.contract.tensor import Buffer, IndexPair, Tensor
from anychip.contract.weights import HostWeight, Weight
from anychip.hostops.views import Array
from anychip.ops.bind import BoundCall, BoundProgram
from anychip.ops.check import Outcome, Verdict, compare
from anychip.ops.oracle import CacheArrays, latent_arrays
from anychip.ops.saved import SavedCall
from anychip.ops.staged import window

DenseWeight = Callable[[Weight], Array]
"""A weight's values as float [N, K], read from the checkpoint: a packed one has no plain tensor."""

WeightParts = Callable[[Weight], tuple[HostWeight, ...]]
"""What a weight was prepared from, read from the checkpoint."""

Kind = tuple[str, str]
"""Operator and implementation."""


@dataclass(frozen=True)
class Divergence:
    """A call that differs. index: which call of the program. call: all that replaying it takes."""

    index: int
    op: str
    implementation: str
    verdict: Verdict
    call: SavedCall = field(repr=False)

    @property
    def kind(self) -> Kind:
        """Operator and implementation."""
        return self.op, self.implementation

    @property
    def is_fused(self) -> bool:
        """Whether unrolling it may tell more."""
        return CATALOGUE[self.op].tier is Tier.FUSED

    def __str__(self) -> str:
        return f"call {self.index}, {self.implementation}: {self.verdict.text}"


class CheckedRun:
    """Runs programs on a chip whose memory is `memory`, checking every call.

    checked: calls so far. diverged: calls that differ, by kind. inconclusive: calls whose check
    could not have failed, by operator. first: the first divergence of each kind, in call order.
    worst: the largest error of each kind, whether it is within its limit or not.
    """

    def __init__(
        self, memory: Memory, dense: DenseWeight, parts: WeightParts | None = None
    ) -> None:
        """parts: without it a divergence keeps its weights as dense arrays."""
        self._memory, self._dense, self._parts = memory, dense, parts
        self.checked = 0
        self.diverged: Counter[Kind] = Counter()
        self.inconclusive: Counter[str] = Counter()
        self.first: dict[Kind, Divergence] = {}
        self.worst: dict[Kind, Verdict] = {}

    def run(self, program: BoundProgram) -> Divergence | None:
        """Run all calls; the first divergence, or None. The program's results are as ever."""
        found: Divergence | None = None
        for index, bound in enumerate(program.calls):
            divergence = self._check(index, bound)
            found = found or divergence
        return found

    def _check(self, index: int, bound: BoundCall) -> Divergence | None:
        """Run one call between copies of what it is given and of what it leaves."""
        call, op = bound.call, bound.call.spec.op
        touched = _touched_pages(call, self._read)
        inputs = {name: self._host(v, touched) for name, v in call.inputs.items()}
        inputs = _renumbered(inputs, touched)
        self._poison_outputs(bound)
        bound.launch()
        outputs: dict[str, Any] = {n: self._read(t) for n, t in call.outputs.items()}
        for name in CATALOGUE[op].writes:
            outputs[name] = self._host(call.inputs[name], touched)
        with np.errstate(all="ignore"):  # garbage in the neighbour page is none of the call's
            verdict = compare(op, inputs, call.attrs, outputs, _result_dtype(call))
        verdict = tolerated(verdict, bound.implementation)
        self.checked += 1
        keep_worst(self.worst, (op, bound.implementation.id), verdict)
        if verdict.ok:
            self.inconclusive[op] += not verdict.conclusive
            return None
        saved = self._saved(bound, inputs, outputs, verdict)
        found = Divergence(index, op, bound.implementation.id, verdict, saved)
        self.diverged[found.kind] += 1
        self.first.setdefault(found.kind, found)
        return found

    def _saved(
        self, bound: BoundCall, inputs: Outcome, outputs: Outcome, verdict: Verdict
    ) -> SavedCall:
        given, parts = dict(inputs), {}
        for name, value in bound.call.inputs.items():
            if isinstance(value, Weight) and self._parts is not None:
                parts[name] = self._parts(value)
                del given[name]
        return SavedCall(
            op=bound.call.spec.op,
            attrs=bound.call.attrs,
            inputs=given,
            outputs=outputs,
            dtype=_result_dtype(bound.call),
            implementation=bound.implementation.id,
            verdict=verdict.text,
            parts=parts,
        )

    def _poison_outputs(self, bound: BoundCall) -> None:
        shared = {o for o, _ in bound.implementation.aliases}
        for name, tensor in bound.call.outputs.items():
            if name not in shared:  # poison there would spoil the input that it may share with
                self._poison(tensor)

    def _host(self, value: Value | None, touched: list[int]) -> Any:
        if isinstance(value, CacheView):
            return self._cache(value, touched)
        if isinstance(value, Weight):
            return self._dense(value)
        if isinstance(value, IndexPair):
            return self._read(value.device)
        return None if value is None else self._read(value)

    def _cache(self, view: CacheView, touched: list[int]) -> CacheArrays:
        k = self._pages(view.k, touched)
        if view.spec.group.latent:
            return latent_arrays(k, view.spec.group.latent)
        return CacheArrays(k, self._pages(view.v, touched))

    def _pages(self, half: Tensor, pages: list[int]) -> Array:
        inner = half.shape[1:], half.strides[1:]
        views = [half.view(*inner, offset=page * half.strides[0]) for page in pages]
        return np.stack([self._read(view) for view in views])

    def _read(self, tensor: Tensor) -> Array:
        """A copy of a tensor, strides and gaps kept."""
        raw = np.zeros(tensor.extent_bytes, np.uint8)
        if raw.size:
            self._memory.copy_out(window(tensor), raw.data)
        twin = Tensor(tensor.shape, tensor.dtype, tensor.strides, buffer=Buffer(raw, raw.nbytes))
        return hostops.array_view(raw, twin)

    def _poison(self, tensor: Tensor) -> None:
        if tensor.size:
            self._memory.copy_in(window(tensor), np.full(tensor.extent_bytes, 0xFF, np.uint8).data)


def keep_worst(worst: dict[Kind, Verdict], kind: Kind, verdict: Verdict) -> None:
    """Note a verdict where none of its kind has a larger error."""
    if kind not in worst or verdict.relative_l2 > worst[kind].relative_l2:
        worst[kind] = verdict


def tolerated(verdict: Verdict, implementation: Implementation) -> Verdict:
    """The verdict under the limit times the tolerance that an implementation declares."""
    bound = verdict.limit * implementation.tolerance
    if verdict.ok or verdict.relative_l2 > bound:
        return verdict
    text = f"{verdict.text}; within {implementation.id}'s declared tolerance of "
    return replace(verdict, ok=True, text=f"{text}{implementation.tolerance:g} limits")


def _touched_pages(call: Call, read: Callable[[Tensor], Array]) -> list[int]:
    """Pages that a call may read or write, and one neighbour that it must leave alone."""
    cache = call.inputs.get("cache")
    if not isinstance(cache, CacheView):
        return []
    pages: set[int] = set()
    for name in ("page_table", "sources", "targets", "slots"):
        index = call.inputs.get(name)
        if isinstance(index, IndexPair):
            values = read(index.device).reshape(-1)
            divisor = cache.spec.group.page_size if name == "slots" else 1
            pages.update((values[values >= 0] // divisor).tolist())
    neighbour = next((p for p in range(cache.spec.pages) if p not in pages), None)
    return sorted(pages) + ([] if neighbour is None else [neighbour])


def _renumbered(inputs: dict[str, Any], touched: list[int]) -> dict[str, Any]:
    """The inputs of the same call over the touched pages alone."""
    if not touched:
        return inputs
    place = {page: i for i, page in enumerate(touched)}
    renumber = np.vectorize(lambda page: place.get(int(page), -1), otypes=[np.int32])
    size = inputs["cache"].page_size
    changed = dict(inputs)
    for name in ("page_table", "sources", "targets"):
        if inputs.get(name) is not None and inputs[name].size:
            changed[name] = renumber(inputs[name])
    slots = inputs.get("slots")
    if slots is not None and slots.size:
        changed["slots"] = np.where(slots < 0, -1, renumber(slots // size) * size + slots % size)
    return changed


def _result_dtype(call: Call) -> DType:
    """The dtype that float results are held in: an output's, otherwise the cache's."""
    for tensor in call.outputs.values():
        if tensor.dtype.is_float:
            return tensor.dtype
    cache = call.inputs.get("cache")
    return cache.spec.group.dtype if isinstance(cache, CacheView) else DType.FLOAT32
