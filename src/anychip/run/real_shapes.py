"""Each operator that a model needs, at the shapes of its largest steps, against the oracle.

Random activations, the model's own weights: what a chip does wrong with a format or at a size
shows in seconds, before a whole model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anychip.contract.cache import CacheSpec
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec, Implementation, ImplKind
from anychip.contract.signature import Spec
from anychip.contract.weights import HostWeight
from anychip.model.formats import dequantize
from anychip.ops.check import Outcome, Verdict, compare
from anychip.ops.checked import tolerated
from anychip.ops.drawn import drawn
from anychip.ops.placed import place
from anychip.ops.record import MISSING, Recorder
from anychip.ops.suspects import explained
from anychip.ops.trace import Node
from anychip.ops.value import WeightRef
from anychip.run.dense import parts_reader
from anychip.run.model_plan import trace_step
from anychip.run.plan_run import Opened
from anychip.run.sizes import Sizes, table_width

LONG = 2048
"""Positions that a row's page table covers at most: the oracle's work stays within seconds."""


@dataclass(frozen=True)
class Asked:
    """One call. weights: argument -> name of the model's weight."""

    implementation: Implementation
    spec: CallSpec
    weights: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What one call showed. why: the mistake that explains a divergence, where one does."""

    asked: Asked
    verdict: Verdict
    why: str = ""

    @property
    def text(self) -> str:
        """For a finding."""
        sizes = ", ".join(f"{n} {_shape(s)}" for n, s in self.asked.spec.inputs.items() if s)
        tail = f"; it looks as if {self.why}" if self.why else ""
        return f"{self.asked.implementation.id}: {self.verdict.text} ({sizes}){tail}"


def _shape(spec: Spec) -> str:
    dtype = spec.dtype.value if hasattr(spec, "dtype") else ""
    return f"{dtype}{list(spec.shape)}"


class RealShapes:
    """The calls of an opened model, and what each shows. Guesses are run as well: this is what
    confirms them."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        converted = {w.source.name: w.converted for w in opened.plan.weights if w.converted}
        self._parts = parts_reader(opened.checkpoint, converted)

    def calls(self) -> list[Asked]:
        """Every different call of a full prefill and of full decodes, greedy and sampled."""
        decide = replace(self._opened.decider, proved=self._opened.chip.operators.ids)
        found: dict[Any, Asked] = {}
        for sizes in self._sizes():
            for node in trace_step(self._opened.plan, sizes, 2, Recorder(decide)).nodes:
                found.setdefault(_key(node), _asked(node))
        return [a for a in found.values() if _own(a.implementation)]

    def _sizes(self) -> tuple[Sizes, ...]:
        plan, limits = self._opened.plan, self._opened.limits
        most = min(plan.most_pages, -(-LONG // plan.group.page_size))
        chunk, rows = min(self._opened.chunk, LONG), limits.max_running
        wide = table_width(-(-chunk // plan.group.page_size) + 4, most)
        narrow = table_width(8, most)
        return (
            Sizes(chunk, 1, 1, wide),
            Sizes(rows, rows, rows, narrow),
            Sizes(rows, rows, rows, narrow, greedy=False),
        )

    def answer(self, asked: Asked) -> Answer:
        """Run one call. Raises ChipError, OpaqueCache, SignatureError."""
        inputs = drawn(asked.spec, asked.implementation.id)
        parts = {arg: self._parts(name) for arg, name in asked.weights.items()}
        dense = {arg: _dense(found) for arg, found in parts.items()}
        outcome, damaged = self._run(asked, inputs, parts)
        held = _held_in(asked.spec)
        with np.errstate(all="ignore"):
            verdict = compare(asked.spec.op, {**inputs, **dense}, asked.spec.attrs, outcome, held)
        verdict = tolerated(verdict, asked.implementation)
        if damaged:
            verdict = replace(verdict, ok=False, text=f"bytes beside '{damaged}' were written")
        if verdict.ok:
            return Answer(asked, verdict)
        why = explained(asked.spec.op, {**inputs, **dense}, asked.spec.attrs, outcome)
        return Answer(asked, verdict, why)

    def _run(
        self,
        asked: Asked,
        inputs: dict[str, Any],
        parts: Mapping[str, tuple[HostWeight, ...]],
    ) -> tuple[Outcome, str | None]:
        chip = self._opened.chip
        with place(chip, asked.spec.op, inputs, asked.spec.attrs, parts) as placed:
            launch = placed.prepare(asked.implementation)
            placed.poison()
            launch()
            chip.queue.synchronize(None)
            return placed.outcome(), placed.damaged()


def _key(node: Node) -> tuple[Any, ...]:
    """Equal for calls that differ in nothing but their memory and their layer."""
    implementation = node.decision.implementation
    return (
        implementation.id if implementation else "",
        *((n, _plain(s)) for n, s in node.spec.inputs.items()),
        *node.spec.attrs.items(),
    )


def _plain(spec: Spec | None) -> Any:
    return replace(spec, pages=0) if isinstance(spec, CacheSpec) else spec


def _own(implementation: Implementation) -> bool:
    """Whether the chip computes it: neither missing nor lent by the host."""
    return implementation.kind is ImplKind.NATIVE and implementation.id != MISSING


def _asked(node: Node) -> Asked:
    implementation = node.decision.implementation
    assert implementation is not None  # recipes are traced in their place
    weights = {n: ref.name for n, ref in node.inputs.items() if isinstance(ref, WeightRef)}
    return Asked(implementation, node.spec, weights)


def _dense(parts: tuple[HostWeight, ...]) -> Any:
    return np.concatenate([dequantize(part) for part in parts])


def _held_in(spec: CallSpec) -> DType:
    """The dtype that float results are held in: an output's, otherwise the cache's."""
    floats = (s.dtype for s in spec.outputs.values() if s.dtype.is_float)
    cache = spec.inputs.get("cache")
    held = cache.group.dtype if isinstance(cache, CacheSpec) else DType.FLOAT32
    return next(floats, held)


def worst(answers: list[Answer]) -> Iterator[Answer]:
    """Of each implementation that diverges, the answer that lies furthest off."""
    found: dict[str, Answer] = {}
    for answer in answers:
        name = answer.asked.implementation.id
        if not answer.verdict.ok:
            kept = found.get(name)
            if kept is None or answer.verdict.relative_l2 > kept.verdict.relative_l2:
                found[name] = answer
    yield from found.values()
