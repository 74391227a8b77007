"""What an operator is: arguments, dtypes, shapes, attributes. Pure data; `catalogue/` holds them.

Shapes are patterns: "T,K" binds T and K; "T,2*I" binds I to half of the size; "...,K" binds any
leading dimensions, "*" any shape at all. A dtype is a name ("float32"), a variable in capitals
("X") that every use must agree on, or alternatives ("float32|bfloat16|float16").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from anychip.contract.cache import CacheSpec
from anychip.contract.dtype import DType
from anychip.contract.tensor import Shape, TensorSpec
from anychip.contract.weights import WeightSpec


class Tier(str, Enum):
    """How much a chip must bring: see design, operators and programs."""

    PRIMITIVE = "primitive"  # every chip brings it
    COMPOSED = "composed"  # a recipe from primitives exists and is good enough
    REQUIRED = "required native"  # the recipe works, too slow to serve
    FUSED = "fused"  # a rung of the ladder, never required


class ArgKind(str, Enum):
    """What stands behind an argument."""

    TENSOR = "tensor"
    INDEX = "index"  # an IndexPair, int32
    WEIGHT = "weight"  # a Weight, opaque unless dense
    CACHE = "cache"  # a CacheView


class Layout(str, Enum):
    """Which strides an argument may have."""

    CONTIGUOUS = "contiguous"
    ROWS = "rows"  # all but the first dimension contiguous
    STRIDED = "strided"  # any strides, 0 included


@dataclass(frozen=True)
class Arg:
    """One input or output. An output's shape pattern is evaluated from the inputs' bindings."""

    name: str
    dtype: str
    shape: str
    kind: ArgKind = ArgKind.TENSOR
    layout: Layout = Layout.CONTIGUOUS
    optional: bool = False


REQUIRED = object()
"""Default of an attribute that every call must give."""


@dataclass(frozen=True)
class Attr:
    """One attribute, a host scalar, string or tuple, fixed when the program is traced."""

    name: str
    type: str  # "int", "float", "bool", "str", "dtype", "shape"
    default: Any = REQUIRED


Spec = TensorSpec | WeightSpec | CacheSpec
Specs = Mapping[str, Spec | None]
Infer = Callable[[Specs, Mapping[str, Any]], tuple[TensorSpec, ...]]


@dataclass(frozen=True)
class Signature:
    """An operator. writes: inputs that it changes in place. infer: where patterns cannot say it."""

    name: str
    tier: Tier
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    doc: str
    attrs: tuple[Attr, ...] = ()
    writes: tuple[str, ...] = ()
    infer: Infer | None = None

    def arg(self, name: str) -> Arg:
        """The input or output of that name."""
        return next(a for a in (*self.inputs, *self.outputs) if a.name == name)

    @property
    def canonical(self) -> str:
        """The text that the fingerprint covers: everything but the documentation."""
        arg = "{0.name}:{0.kind.value}:{0.dtype}[{0.shape}]:{0.layout.value}:{0.optional}"
        ins = ";".join(arg.format(a) for a in self.inputs)
        outs = ";".join(arg.format(a) for a in self.outputs)
        attrs = ";".join(
            f"{a.name}:{a.type}:{'-' if a.default is REQUIRED else a.default!r}" for a in self.attrs
        )
        return f"{self.name}({ins})->({outs}){{{attrs}}}!{','.join(self.writes)}"


class SignatureError(ValueError):
    """A call does not fit its operator's signature."""


def demand(holds: bool, text: str) -> None:
    """Raise SignatureError where a call does not hold what its operator asks for."""
    if not holds:
        raise SignatureError(text)


def shape_of(inputs: Specs, name: str) -> Shape:
    """Shape of an input that must be there."""
    spec = inputs.get(name)
    if spec is None:
        raise SignatureError(f"'{name}' is missing")
    return spec.shape


def infer_outputs(
    signature: Signature, inputs: Specs, attrs: Mapping[str, Any]
) -> tuple[TensorSpec, ...]:
    """Output shapes and dtypes of a call; checks ranks, sizes and dtypes of the inputs."""
    dims, types = bind_inputs(signature, inputs)
    if signature.infer is not None:
        return signature.infer(inputs, attrs)
    return tuple(
        TensorSpec(evaluate(a.shape, dims), DType(types.get(a.dtype, a.dtype)))
        for a in signature.outputs
    )


def bind_inputs(signature: Signature, inputs: Specs) -> tuple[dict[str, Any], dict[str, str]]:
    """Dimension and dtype variables of a call: {"T": 3, ...}, {"X": "float32", ...}."""
    dims: dict[str, Any] = {}
    types: dict[str, str] = {}
    for arg in signature.inputs:
        spec = inputs.get(arg.name)
        if spec is None:
            if not arg.optional:
                raise SignatureError(f"{signature.name}: '{arg.name}' is missing")
            continue
        _bind_dtype(signature.name, arg, spec, types)
        _bind_shape(signature.name, arg, spec.shape, dims)
    return dims, types


def _bind_dtype(op: str, arg: Arg, spec: Spec, types: dict[str, str]) -> None:
    got = dtype_name(spec)
    if arg.dtype.isupper():
        wanted = types.setdefault(arg.dtype, got)
        if wanted != got:
            raise SignatureError(
                f"{op}: '{arg.name}' is {got}, another argument made {arg.dtype} {wanted}"
            )
    elif arg.dtype != "any" and got not in arg.dtype.split("|"):
        raise SignatureError(f"{op}: '{arg.name}' is {got}, it must be {arg.dtype}")


def dtype_name(spec: Spec) -> str:
    """The name that dtype rows match: a dtype, a weight's format, a cache's dtype."""
    if isinstance(spec, WeightSpec):
        return spec.format
    if isinstance(spec, CacheSpec):
        return spec.group.dtype.value
    return spec.dtype.value


def _bind_shape(op: str, arg: Arg, shape: Shape, dims: dict[str, Any]) -> None:
    if arg.shape == "*":
        return
    terms = arg.shape.split(",") if arg.shape else []
    if terms and terms[0] == "...":
        terms = terms[1:]
        lead, shape = shape[: len(shape) - len(terms)], shape[len(shape) - len(terms) :]
        if dims.setdefault("...", lead) != lead:
            raise SignatureError(
                f"{op}: '{arg.name}' has leading sizes {lead}, expected {dims['...']}"
            )
    if len(terms) != len(shape):
        raise SignatureError(f"{op}: '{arg.name}' has shape {shape}, expected [{arg.shape}]")
    for term, size in zip(terms, shape, strict=True):
        factor, name = _split(term)
        if size % factor or dims.setdefault(name, size // factor) != size // factor:
            raise SignatureError(
                f"{op}: '{arg.name}' has shape {shape}, expected [{arg.shape}] with {dims}"
            )


def _split(term: str) -> tuple[int, str]:
    factor, _, name = term.rpartition("*")
    if name.isdigit():
        return int(name), "1"
    return int(factor or 1), name


def evaluate(pattern: str, dims: Mapping[str, Any]) -> Shape:
    """The sizes that a pattern stands for."""
    sizes: list[int] = []
    for term in pattern.split(",") if pattern else []:
        if term == "...":
            sizes.extend(dims["..."])
        elif term.isdigit():
            sizes.append(int(term))
        else:
            factor, name = _split(term)
            sizes.append(factor * dims[name])
    return tuple(sizes)
