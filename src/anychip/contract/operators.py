"""Implementations: which operator, which dtypes, which sizes, and how a call is prepared.

Decide before the call: `dtypes` and `when` are asked ahead of the first step, `prepare` turns a
call with its memory into a launch, and a launch that has started is never re-run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from anychip.contract.cache import KNOWN_LAYOUTS, CacheSpec, CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.catalogue.attention import LATENT
from anychip.contract.errors import ContractError
from anychip.contract.signature import ArgKind, Signature, Spec, bind_inputs, dtype_name
from anychip.contract.tensor import IndexPair, Tensor, TensorSpec
from anychip.contract.weights import Weight, WeightSpec

Value = Tensor | IndexPair | Weight | CacheView
Launch = Callable[[], None]
"""Puts one prepared call on the queue. Sizes, views and attributes are fixed; index values and
tensor contents are read when it runs."""


class ImplKind(str, Enum):
    """Where an implementation runs. Composed and host ones belong to the core."""

    NATIVE = "native"
    COMPOSED = "composed"
    HOST = "host"


@dataclass(frozen=True, eq=False)
class CallSpec:
    """A call before it has memory. An index argument is given by its TensorSpec."""

    op: str
    inputs: Mapping[str, Spec | None]
    outputs: Mapping[str, TensorSpec]
    attrs: Mapping[str, Any]

    def dtypes(self) -> dict[str, str]:
        """Dtype names of all arguments that are present."""
        present = {n: s for n, s in self.inputs.items() if s is not None}
        return {n: dtype_name(s) for n, s in {**present, **self.outputs}.items()}


@dataclass(frozen=True, eq=False)
class Call:
    """A call with its memory. workspace: scratch of `Implementation.workspace` bytes, or None."""

    spec: CallSpec
    inputs: Mapping[str, Value | None]
    outputs: Mapping[str, Tensor]
    workspace: Tensor | None = None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes, defaults filled in."""
        return self.spec.attrs


@dataclass(frozen=True)
class DtypeRow:
    """One combination of the signature's dtype variables that is covered, with its compute type.

    types: variable -> dtypes, for example {"X": ("bfloat16",), "W": ("q8_0",)}; every variable of
    the signature must be there. compute: the type products are accumulated in.
    """

    types: Mapping[str, tuple[str, ...]]
    compute: str = "float32"


def uniform_row(signature: Signature, types: tuple[str, ...], held: tuple[str, ...]) -> DtypeRow:
    """Every argument may have any of `types`, and every cache be held in any of `held`."""
    arguments = (*signature.inputs, *signature.outputs)
    caches = {a.dtype for a in signature.inputs if a.kind is ArgKind.CACHE}
    variables = {a.dtype for a in arguments if a.dtype.isupper()}
    return DtypeRow({**dict.fromkeys(variables, types), **dict.fromkeys(caches, held)})


def plain_only(call: CallSpec) -> str | None:
    """None where every weight is dense and every cache in a layout that the core knows; otherwise
    which is not, for an implementation's `when`."""
    for name, spec in call.inputs.items():
        if isinstance(spec, WeightSpec) and not spec.dense:
            return f"'{name}' is packed as {spec.format}; only dense weights are read here"
        if isinstance(spec, CacheSpec) and spec.group.layout not in KNOWN_LAYOUTS:
            known = " and ".join(KNOWN_LAYOUTS)
            return f"'{name}' has layout {spec.group.layout}; only {known} are read here"
    return None


def _covers_all(call: CallSpec) -> str | None:
    return None


def _no_workspace(call: CallSpec) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to compute one operator.

    id: unique in a table, for example "avx512.linear". when: pure; None where it covers the call,
    otherwise the reason why not. workspace: bytes of scratch for a call; it must not shrink when
    a size grows, because memory is set aside for the largest step alone. aliases: (output, input)
    pairs that may share memory. reads_host: it reads the host half of an index pair. tolerance:
    how many times the kit's limit of error it needs. call: what it calls of the vendor's, for
    people. assumed: what of that call is a guess that no vendor document shows; it is printed.
    unproved: a guess that no run on this SDK has confirmed yet: the core does not bind it before
    `anychip doctor` has compared it with the oracle at a model's real shapes. latent: of an
    operator that takes any cache, it takes latent ones too; a chip of 0.4 or older does not know
    them, so it declines.
    """

    op: str
    id: str
    prepare: Callable[[Call], Launch]
    kind: ImplKind = ImplKind.NATIVE
    dtypes: tuple[DtypeRow, ...] = (DtypeRow({}),)
    when: Callable[[CallSpec], str | None] = _covers_all
    workspace: Callable[[CallSpec], int] = _no_workspace
    aliases: tuple[tuple[str, str], ...] = ()
    reads_host: bool = False
    tolerance: float = 1.0
    call: str = ""
    assumed: str = ""
    unproved: bool = False
    latent: bool = False

    def declines(self, call: CallSpec) -> str | None:
        """None where it covers the call, otherwise the reason."""
        signature = CATALOGUE[self.op]
        _, types = bind_inputs(signature, call.inputs)
        for arg in signature.outputs:
            if arg.dtype.isupper():
                types.setdefault(arg.dtype, call.outputs[arg.name].dtype.value)
        if not any(_row_covers(row, types) for row in self.dtypes):
            return "no dtype row for " + ", ".join(f"{k}={v}" for k, v in sorted(types.items()))
        if not self.latent and self.op not in LATENT and _has_latent(call):
            return "its pages hold keys and values, the cache is latent"
        return self.when(call)


def _has_latent(call: CallSpec) -> bool:
    return any(isinstance(s, CacheSpec) and s.group.latent for s in call.inputs.values())


def _row_covers(row: DtypeRow, types: Mapping[str, str]) -> bool:
    return all(types[variable] in row.types[variable] for variable in types)


@dataclass(frozen=True)
class OperatorTable:
    """Every implementation that a chip brings, in order of preference within one operator."""

    implementations: tuple[Implementation, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for impl in self.implementations:
            problem = _problem(impl, seen)
            if problem:
                raise ContractError(f"operator table: {problem}")
            seen.add(impl.id)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all implementations."""
        return frozenset(i.id for i in self.implementations)

    def of(self, op: str) -> tuple[Implementation, ...]:
        """Implementations of one operator."""
        return tuple(i for i in self.implementations if i.op == op)

    def without(self, ops: Iterable[str]) -> OperatorTable:
        """The same table with some operators taken out."""
        gone = set(ops)
        return OperatorTable(tuple(i for i in self.implementations if i.op not in gone))


def _problem(impl: Implementation, seen: set[str]) -> str | None:
    if impl.op not in CATALOGUE:
        return f"'{impl.id}' implements '{impl.op}', which is not in the catalogue"
    if impl.id in seen:
        return f"'{impl.id}' is there twice"
    signature = CATALOGUE[impl.op]
    variables = {a.dtype for a in (*signature.inputs, *signature.outputs) if a.dtype.isupper()}
    for row in impl.dtypes:
        if set(row.types) != variables:
            return (
                f"'{impl.id}' has a dtype row over {sorted(row.types)}, "
                f"its operator has {sorted(variables)}"
            )
    names = {a.name for a in signature.inputs}
    outputs = {a.name for a in signature.outputs}
    for out, source in impl.aliases:
        if out not in outputs or source not in names:
            return f"'{impl.id}' aliases ({out}, {source}), which are not an output and an input"
    return None
