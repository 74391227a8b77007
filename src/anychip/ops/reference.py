"""The reference interpreter: a traced program call by call on host arrays, no chip anywhere.

By the oracle nothing is rounded between two calls: floats stay float64 from the first operator to
the last, caches included. By recipe the same program is rounded as a chip would round it that
brings primitives alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Call, CallSpec, Implementation, Launch
from anychip.ops.decide import Decision
from anychip.ops.on_numpy import NumpyOps, wrapped
from anychip.ops.oracle import CacheArrays, Result, evaluate
from anychip.ops.oracle.arrays import Array, Inputs
from anychip.ops.trace import Node, Program
from anychip.ops.value import CacheRef, Ref, Storage, Value, WeightRef

Given = Callable[[str, str], Array]
"""(kind, key) of a storage -> the array that a program is given: "index", "input", "constant",
"weight" (dense, [N, K]), "cache" (keys "0.k", "0.v", ..). The same cache array every time: it is
written in place."""

Answer = Callable[[str, Inputs, Mapping[str, Any]], Result]
"""(operator, inputs, attributes) -> outputs, and what was written unless it is in place."""


def undivided(call: CallSpec) -> Decision:
    """Decides every call as it stands: nothing is composed, so each operator is one node."""
    return Decision(Implementation(op=call.op, id="reference", prepare=_never))


def _never(call: Call) -> Launch:
    raise NotImplementedError(f"'{call.spec.op}': the reference is interpreted, never launched")


def by_recipe(op: str, inputs: Inputs, attrs: Mapping[str, Any]) -> Result:
    """An operator by its recipe, down to primitives, rounded to the dtypes of its inputs."""
    signature = CATALOGUE[op]
    given = {a.name: wrapped(a, inputs.get(a.name)) for a in signature.inputs}
    found = NumpyOps().call(signature, {**given, **attrs})
    values = found if isinstance(found, tuple) else () if found is None else (found,)
    return Result(tuple(value.array for value in values))


def interpret(program: Program, given: Given, answer: Answer = evaluate) -> dict[str, Array]:
    """The program's results by name. Dtypes are the answer's: float64 by the oracle.

    The program is traced with `undivided`, in float32 where the oracle answers: operators that
    name a dtype round to it. What it makes is kept until the end.
    """
    run = _Run(given, answer)
    for node in program.nodes:
        run.call(node)
    return {name: run.array(value) for name, value in program.results.items()}


class _Run:
    """The arrays of one run; those made within it are flat, by storage."""

    def __init__(self, given: Given, answer: Answer) -> None:
        self._given, self._answer = given, answer
        self._made: dict[Storage, Array] = {}

    def call(self, node: Node) -> None:
        inputs = {name: self._operand(ref) for name, ref in node.inputs.items()}
        result = self._answer(node.spec.op, inputs, node.spec.attrs)
        for name, found in result.written.items():
            _overwrite(inputs[name], found)
        for value, array in zip(node.outputs.values(), result.outputs, strict=True):
            self._made[value.storage] = np.ascontiguousarray(array).reshape(-1)

    def _operand(self, ref: Ref | None) -> Any:
        if ref is None:
            return None
        if isinstance(ref, CacheRef):
            return CacheArrays(self.array(ref.k), self.array(ref.v), ref.latent)
        if isinstance(ref, WeightRef):
            return self._given("weight", ref.name)
        return self.array(ref)

    def array(self, value: Value) -> Array:
        """A view of the storage that the value views; writes reach it."""
        storage = value.storage
        flat = self._made.get(storage)
        if flat is None:
            flat = self._given(storage.kind, storage.key).reshape(-1)
        steps = [s * flat.itemsize for s in value.spec.strides]
        return np.lib.stride_tricks.as_strided(flat[value.offset :], value.shape, steps)


def _overwrite(target: Array | CacheArrays, found: Array | CacheArrays) -> None:
    if isinstance(target, CacheArrays) and isinstance(found, CacheArrays):
        target.k[...], target.v[...] = found.k, found.v
    elif isinstance(target, np.ndarray):
        target[...] = found
