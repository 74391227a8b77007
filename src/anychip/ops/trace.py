"""Tracing: a network is called once with symbols, and its operator calls become a program.

Each call is decided on the spot: an implementation takes it, or its recipe is traced in its
place, down to operators that the chip has. No device and no weights are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import CallSpec
from anychip.contract.signature import (
    REQUIRED,
    Arg,
    ArgKind,
    Layout,
    Signature,
    SignatureError,
    Tier,
    infer_outputs,
)
from anychip.contract.tensor import TensorSpec
from anychip.ops.compositions import COMPOSITIONS
from anychip.ops.decide import Decision
from anychip.ops.value import Ref, Storage, Value


@dataclass(frozen=True, eq=False)
class Node:
    """One call of a program, decided."""

    spec: CallSpec
    inputs: Mapping[str, Ref | None]
    outputs: Mapping[str, Value]
    decision: Decision


@dataclass
class Program:
    """Calls in order, and the values that outlive them.

    has_recipes: operators below the fused rungs are composed; such recipes may unroll by size, so
    that which calls follow each other depends on more than the network. late_from: the first call
    that may read inputs which are copied while those before it run; None: there is none.
    """

    nodes: list[Node] = field(default_factory=list)
    results: dict[str, Value] = field(default_factory=dict)
    has_recipes: bool = False
    late_from: int | None = None


class Ops:
    """`ops.rms_norm(x, weight, eps=1e-5)` adds a call to the program and returns its outputs.

    Inputs by position or name, attributes by name. One output comes back as a Value, several as
    a tuple, none as None. Raises SignatureError for a call that does not fit its signature.
    """

    def __init__(self, decide: Callable[[CallSpec], Decision]) -> None:
        self._decide = decide
        self.program = Program()
        self._specs: dict[tuple[Any, ...], CallSpec] = {}
        self._count = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CATALOGUE:
            raise AttributeError(f"no operator '{name}' in the catalogue")

        def call(*args: Ref | None, **named: Any) -> Any:
            return self._call(CATALOGUE[name], args, named)

        return call

    def _call(
        self, signature: Signature, args: tuple[Ref | None, ...], named: dict[str, Any]
    ) -> Any:
        inputs, attrs = split_arguments(signature, args, named)
        inputs = {a.name: self._laid_out(a, inputs.get(a.name)) for a in signature.inputs}
        call = self._spec(signature, inputs, attrs)
        decision = self._decide(call)
        if decision.composed:
            self.program.has_recipes |= signature.tier is not Tier.FUSED
            return COMPOSITIONS[signature.name](self, **inputs, **attrs)
        values = {n: self._fresh(s) for n, s in call.outputs.items()}
        self.program.nodes.append(Node(call, inputs, values, decision))
        found = tuple(values.values())
        return found[0] if len(found) == 1 else found or None

    def _spec(
        self, signature: Signature, inputs: Mapping[str, Ref | None], attrs: Mapping[str, Any]
    ) -> CallSpec:
        """The call's spec; the layers of a network repeat theirs, so equal ones are shared."""
        specs = {n: None if v is None else v.spec for n, v in inputs.items()}
        key = (signature.name, *specs.values(), *attrs.values())
        found = self._specs.get(key)
        if found is None:
            outs = infer_outputs(signature, specs, attrs)
            outputs = {a.name: s for a, s in zip(signature.outputs, outs, strict=True)}
            found = self._specs[key] = CallSpec(signature.name, specs, outputs, attrs)
        return found

    def _laid_out(self, arg: Arg, value: Ref | None) -> Ref | None:
        """The argument itself, or a contiguous copy where its strides are not allowed."""
        if not isinstance(value, Value) or arg.layout is Layout.STRIDED or value.is_contiguous:
            return value
        if arg.kind is ArgKind.INDEX:
            raise SignatureError(f"'{arg.name}' is an index and cannot be a strided view")
        if arg.layout is Layout.ROWS and value.spec.has_contiguous_rows:
            return value
        copied: Value = self.copy(value)
        return copied

    def _fresh(self, spec: TensorSpec) -> Value:
        self._count += 1
        return Value(Storage("arena", str(self._count), spec.nbytes), spec)


def split_arguments(
    signature: Signature, args: tuple[Ref | None, ...], named: dict[str, Any]
) -> tuple[dict[str, Ref | None], dict[str, Any]]:
    """Inputs by name, and attributes with their defaults filled in."""
    names = [a.name for a in signature.inputs]
    inputs: dict[str, Ref | None] = dict(zip(names, args, strict=False))
    attrs = {a.name: a.default for a in signature.attrs}
    for name, value in named.items():
        if name in names and name not in inputs:
            inputs[name] = value
        elif name in attrs:
            attrs[name] = value
        else:
            raise SignatureError(f"{signature.name} has no argument '{name}', or has it twice")
    missing = [n for n, v in attrs.items() if v is REQUIRED]
    if len(args) > len(names) or missing:
        raise SignatureError(
            f"{signature.name}: {len(args)} inputs given, attributes missing: {missing}"
        )
    return inputs, attrs
