"""Each operator that a model needs, at the shapes of its largest steps, against the oracle.

Random activations, the model's own weights, norms and biases: what a chip does wrong with a format
or at a size shows in seconds, before a whole model is loaded. Random norms would not do: a model
grows with its own, and with larger ones attention's scores reach hundreds, where the softmax turns
each rounding of a query or a key into another choice of token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anychip.config import ServeConfig
from anychip.contract.cache import CacheSpec
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec, Implementation, ImplKind
from anychip.contract.signature import Spec, dtype_name
from anychip.contract.weights import HostWeight
from anychip.hostops import NUMPY_DTYPES
from anychip.model.formats import dequantize
from anychip.ops.check import Outcome, Verdict, compare
from anychip.ops.checked import tolerated
from anychip.ops.drawn import CONTEXT, drawn
from anychip.ops.placed import place
from anychip.ops.record import MISSING, Recorder
from anychip.ops.suspects import explained
from anychip.ops.trace import Node
from anychip.ops.value import Value, WeightRef
from anychip.run.dense import dense_reader, parts_reader
from anychip.run.model_plan import trace_step
from anychip.run.plan_run import Opened, attention_is_composed, step_limits
from anychip.run.sizes import SAMPLED, Sizes, table_width

LONG = 2048
"""Positions that a row's page table covers at most: the oracle's work stays within seconds."""


@dataclass(frozen=True)
class Asked:
    """One call. weights: argument -> name of the model's weight. plain: argument -> what it views
    of the model's plain numbers: norms, biases, matrices that a recipe reads as tensors."""

    implementation: Implementation
    spec: CallSpec
    weights: Mapping[str, str]
    plain: Mapping[str, Value] = field(default_factory=dict)

    @property
    def sizes(self) -> str:
        """Its inputs, for people."""
        return ", ".join(f"{n} {_shape(s)}" for n, s in self.spec.inputs.items() if s)


@dataclass(frozen=True)
class Answer:
    """What one call showed. why: the mistake that explains a divergence, where one does."""

    asked: Asked
    verdict: Verdict
    why: str = ""

    @property
    def telling(self) -> bool:
        """Whether a wrong result would have been noticed. Without inputs there is no control:
        then what was poison before is compared element by element."""
        return self.verdict.conclusive or not self.asked.spec.inputs

    @property
    def text(self) -> str:
        """For a finding."""
        tail = f"; it looks as if {self.why}" if self.why else ""
        return f"{self.asked.implementation.id}: {self.verdict.text} ({self.asked.sizes}){tail}"


def _shape(spec: Spec) -> str:
    """A cache has as many pages as the drawn batch takes, whatever the program was traced with."""
    sizes = [*map(str, spec.shape)]
    if isinstance(spec, CacheSpec):
        sizes[0] = "pages"
    return f"{dtype_name(spec)}[{', '.join(sizes)}]"


def with_guesses(config: ServeConfig, opened: Opened, ids: Iterable[str]) -> Opened:
    """The same run as if these guesses had been confirmed: limits follow from what is bound."""
    decider = replace(opened.decider, proved=opened.decider.proved | frozenset(ids))
    composed = attention_is_composed(opened.plan, decider)
    limits, chunk = step_limits(config, opened.plan, opened.chip, composed=composed)
    return replace(opened, decider=decider, limits=limits, chunk=chunk, composed_attention=composed)


Watch = Callable[[str], AbstractContextManager[object]]
"""Entered, with an implementation's id, while the chip works on one of its calls."""


class RealShapes:
    """The calls of an opened model, and what each shows."""

    def __init__(self, config: ServeConfig, opened: Opened, watch: Watch = nullcontext) -> None:
        """config: what `opened` was opened with."""
        self._config, self._opened, self._watch = config, opened, watch
        converted = {w.source.name: w.converted for w in opened.plan.weights if w.converted}
        self._parts = parts_reader(opened.checkpoint, converted)
        self._values = dense_reader(opened.checkpoint, converted)

    def calls(self) -> list[Asked]:
        """Every different call of full prefills and of full decodes, greedy and sampled: as bound
        now, and as bound once all guesses are confirmed, which is what confirms them."""
        now = self._opened
        runs = [with_guesses(self._config, now, now.chip.operators.ids), now]
        found: dict[Any, Asked] = {}
        for run in runs if any(i.unproved for i in now.chip.operators.implementations) else [now]:
            for sizes in largest(run):
                slots = 1 + run.limits.max_running
                traced = trace_step(run.plan, sizes, 2, Recorder(run.decider), slots=slots)
                for node in traced.nodes:
                    found.setdefault(_key(node), _asked(node))
        return [a for a in found.values() if _own(a.implementation)]

    def answer(self, asked: Asked) -> Answer:
        """Run one call. Raises ChipError, OpaqueCache, SignatureError."""
        inputs = drawn(asked.spec, asked.implementation.id)
        inputs |= {arg: self._own_numbers(value) for arg, value in asked.plain.items()}
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

    def _own_numbers(self, value: Value) -> Any:
        """The model's, with the strides of the view."""
        dtype = np.dtype(NUMPY_DTYPES[value.dtype])
        flat = self._values(value.storage.key).astype(dtype).reshape(-1)[value.offset :]
        strides = [s * dtype.itemsize for s in value.spec.strides]
        return np.lib.stride_tricks.as_strided(flat, value.shape, strides)

    def _run(
        self,
        asked: Asked,
        inputs: dict[str, Any],
        parts: Mapping[str, tuple[HostWeight, ...]],
    ) -> tuple[Outcome, str | None]:
        chip = self._opened.chip
        with (
            self._watch(asked.implementation.id),
            place(chip, asked.spec.op, inputs, asked.spec.attrs, parts) as placed,
        ):
            launch = placed.prepare(asked.implementation)
            placed.poison()
            launch()
            chip.queue.synchronize(None)
            return placed.outcome(), placed.damaged()


def largest(opened: Opened) -> tuple[Sizes, ...]:
    """One prompt's largest chunk; a full prefill beside rows that decode; full decodes."""
    plan, limits = opened.plan, opened.limits
    most = min(plan.most_pages, -(-LONG // plan.group.page_size))
    room = min(plan.context_length, LONG)
    chunk, rows = min(opened.chunk, room), limits.max_running
    full = min(max(limits.step_tokens, rows), max(LONG, rows), rows * room)
    wide = table_width(-(-chunk // plan.group.page_size) + CONTEXT + 1, most)
    narrow = table_width(2 * CONTEXT, most)
    return (
        Sizes(chunk, 1, 1, wide),
        Sizes(full, rows, rows, wide),
        Sizes(rows, rows, rows, narrow),
        Sizes(rows, rows, rows, narrow, SAMPLED),
    )


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
    plain = {n: ref for n, ref in node.inputs.items() if isinstance(ref, Value) and _of_model(ref)}
    return Asked(implementation, node.spec, weights, plain)


def _of_model(value: Value) -> bool:
    """Whether a checkpoint holds it. The rotation table is made, and drawn here: at random angles
    every pair of elements turns, which in the model's own most hardly do."""
    storage = value.storage
    return storage.kind in ("constant", "weight") and not storage.key.startswith("cos_sin")


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
