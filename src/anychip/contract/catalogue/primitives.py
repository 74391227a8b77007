"""Primitives: with these alone every model runs, slowly. Elementwise ones take any strides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.dtype import DType
from anychip.contract.signature import Arg, Attr, Layout, Signature, SignatureError, Specs, Tier
from anychip.contract.tensor import Shape, TensorSpec

S = Layout.STRIDED
UNARY = {
    "exp": "e**x",
    "log": "natural logarithm",
    "neg": "-x",
    "rsqrt": "1 / sqrt(x)",
    "sqrt": "square root",
    "sigmoid": "1 / (1 + e**-x)",
    "tanh": "hyperbolic tangent",
    "silu": "x * sigmoid(x)",
    "gelu_tanh": "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))",
    "abs": "absolute value",
    "round": "nearest integer, halves to even",
}
BINARY = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "div": "a / b",
    "maximum": "the larger",
    "minimum": "the smaller",
    "pow": "a ** b",
}
COMPARE = {"lt": "a < b", "le": "a <= b", "eq": "a == b"}
REDUCE = {
    "reduce_sum": "sum",
    "reduce_max": "largest value",
    "reduce_min": "smallest value",
    "reduce_mean": "mean",
}


def broadcast(op: str, *shapes: Shape) -> Shape:
    """Common shape by numpy's rule: align at the end, 1 stretches."""
    rank = max(len(s) for s in shapes)
    sizes = []
    for axis in range(rank):
        found = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0}
        wide = found - {1} or {1}
        if len(wide) > 1:
            raise SignatureError(f"{op}: shapes {shapes} do not broadcast")
        sizes.append(wide.pop())
    return tuple(sizes)


def _tensor(inputs: Specs, name: str) -> TensorSpec:
    spec = inputs[name]
    if not isinstance(spec, TensorSpec):
        raise SignatureError(f"'{name}' must be a tensor")
    return spec


def _same(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    x = _tensor(inputs, "x")
    return (TensorSpec(x.shape, x.dtype),)


def _cast(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return (TensorSpec(_tensor(inputs, "x").shape, DType(attrs["dtype"])),)


def _fill(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return (TensorSpec(tuple(attrs["shape"]), DType(attrs["dtype"])),)


def _arange(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return (TensorSpec((attrs["length"],), DType(attrs["dtype"])),)


def _binary(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    a, b = _tensor(inputs, "a"), _tensor(inputs, "b")
    return (TensorSpec(broadcast("binary", a.shape, b.shape), a.dtype),)


def _compare(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    a, b = _tensor(inputs, "a"), _tensor(inputs, "b")
    return (TensorSpec(broadcast("compare", a.shape, b.shape), DType.BOOL),)


def _where(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    c, a, b = (_tensor(inputs, n) for n in ("condition", "a", "b"))
    return (TensorSpec(broadcast("where", c.shape, a.shape, b.shape), a.dtype),)


def _reduce(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    x = _tensor(inputs, "x")
    return (TensorSpec((*x.shape[:-1], 1), x.dtype),)


def _argmax(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return (TensorSpec(_tensor(inputs, "x").shape[:-1], DType.INT32),)


def _gather(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    table, index = _tensor(inputs, "table"), _tensor(inputs, "index")
    return (TensorSpec((*index.shape, *table.shape[1:]), table.dtype),)


def _topk(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    x, k = _tensor(inputs, "x"), attrs["k"]
    if not 1 <= k <= x.shape[-1]:
        raise SignatureError(f"topk: k = {k} must lie in 1 .. {x.shape[-1]}")
    shape = (*x.shape[:-1], k)
    return (TensorSpec(shape, x.dtype), TensorSpec(shape, DType.INT32))


def _sort(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    x = _tensor(inputs, "x")
    return (TensorSpec(x.shape, x.dtype), TensorSpec(x.shape, DType.INT32))


def _histogram(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return (TensorSpec((attrs["bins"],), DType.INT32),)


def _matmul(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    a, b = _tensor(inputs, "a"), _tensor(inputs, "b")
    inner, columns = (
        (b.shape[-1], b.shape[-2]) if attrs["transpose_b"] else (b.shape[-2], b.shape[-1])
    )
    if a.shape[-1] != inner or a.shape[:-2] != b.shape[:-2]:
        raise SignatureError(f"matmul: {a.shape} by {b.shape}, transpose_b={attrs['transpose_b']}")
    dtype = DType(attrs["dtype"]) if attrs["dtype"] else a.dtype
    return (TensorSpec((*a.shape[:-1], columns), dtype),)


def _one(name: str, doc: str, x: Arg, y: Arg, infer: Any, *attrs: Attr) -> Signature:
    return Signature(name, Tier.PRIMITIVE, (x,), (y,), doc, attrs, infer=infer)


_X = Arg("x", "X", "...", layout=S)
_ANY = Arg("x", "A", "...", layout=S)
_Y = Arg("y", "A", "...")
_CAST = Arg("y", "B", "...")
_MATMUL_ATTRS = (Attr("transpose_b", "bool", False), Attr("dtype", "dtype", ""))
_AB = (Arg("a", "A", "", layout=S), Arg("b", "A", "", layout=S))


def _free(*args: Arg) -> tuple[Arg, ...]:
    """Arguments whose shapes `infer` checks."""
    return tuple(Arg(a.name, a.dtype, "*", a.kind, a.layout, a.optional) for a in args)


SIGNATURES: tuple[Signature, ...] = (
    _one("copy", "A contiguous copy of any view.", _ANY, _Y, _same),
    _one(
        "cast",
        "Another dtype; to a narrower float rounds to nearest even, to an integer truncates.",
        _ANY,
        _CAST,
        _cast,
        Attr("dtype", "dtype"),
    ),
    Signature(
        "fill",
        Tier.PRIMITIVE,
        (),
        (_CAST,),
        "Every element is `value`.",
        (Attr("shape", "shape"), Attr("value", "float"), Attr("dtype", "dtype")),
        infer=_fill,
    ),
    Signature(
        "arange",
        Tier.PRIMITIVE,
        (),
        (Arg("y", "B", "N"),),
        "0, 1, 2, ... length - 1.",
        (Attr("length", "int"), Attr("dtype", "dtype", "int32")),
        infer=_arange,
    ),
    _one("cumsum", "Running sum over the last dimension.", Arg("x", "A", "..."), _Y, _same),
    *(_one(name, doc, _X, Arg("y", "X", "..."), _same) for name, doc in UNARY.items()),
    *(
        Signature(name, Tier.PRIMITIVE, _free(*_AB), (_Y,), doc + ", broadcast.", infer=_binary)
        for name, doc in BINARY.items()
    ),
    *(
        Signature(
            name,
            Tier.PRIMITIVE,
            _free(*_AB),
            (Arg("y", "bool", "..."),),
            doc + ", broadcast, as bool.",
            infer=_compare,
        )
        for name, doc in COMPARE.items()
    ),
    Signature(
        "where",
        Tier.PRIMITIVE,
        _free(Arg("condition", "bool", "", layout=S), *_AB),
        (_Y,),
        "a where the condition holds, otherwise b; broadcast.",
        infer=_where,
    ),
    *(
        _one(
            name,
            f"The {doc} over the last dimension, kept as size 1; accumulated in float32.",
            _X,
            Arg("y", "X", "..."),
            _reduce,
        )
        for name, doc in REDUCE.items()
    ),
    _one(
        "argmax",
        "Index of the largest value of the last dimension; the lowest index wins ties. A NaN is "
        "never chosen; a row of nothing but NaN gives -1.",
        Arg("x", "X", "...", layout=Layout.ROWS),
        Arg("y", "int32", "..."),
        _argmax,
    ),
    Signature(
        "gather_rows",
        Tier.PRIMITIVE,
        _free(Arg("table", "A", "", layout=Layout.ROWS), Arg("index", "int32", "")),
        (_Y,),
        "y[i] = table[index[i]]; every index must be a row of the table.",
        infer=_gather,
    ),
    Signature(
        "scatter_rows",
        Tier.PRIMITIVE,
        _free(
            Arg("target", "A", ""),
            Arg("source", "A", "", layout=Layout.ROWS),
            Arg("index", "int32", ""),
        ),
        (),
        "target[index[i]] = source[i]; a negative index is skipped; no index above 0 twice.",
        writes=("target",),
    ),
    Signature(
        "scatter_add_rows",
        Tier.PRIMITIVE,
        _free(
            Arg("target", "float32", ""), Arg("source", "float32", ""), Arg("index", "int32", "")
        ),
        (),
        "target[index[i]] += source[i]; a negative index is skipped; repeats add up.",
        writes=("target",),
    ),
    Signature(
        "topk",
        Tier.PRIMITIVE,
        (Arg("x", "X", "..."),),
        (Arg("values", "X", "..."), Arg("indices", "int32", "...")),
        "The k largest of the last dimension, descending; ties: the lower index first.",
        (Attr("k", "int"),),
        infer=_topk,
    ),
    Signature(
        "sort",
        Tier.PRIMITIVE,
        (Arg("x", "X", "..."),),
        (Arg("values", "X", "..."), Arg("indices", "int32", "...")),
        "The last dimension in descending order, stable.",
        infer=_sort,
    ),
    Signature(
        "histogram",
        Tier.PRIMITIVE,
        _free(Arg("index", "int32", "")),
        (Arg("y", "int32", "N"),),
        "How often each of 0 .. bins - 1 occurs.",
        (Attr("bins", "int"),),
        infer=_histogram,
    ),
    Signature(
        "matmul",
        Tier.PRIMITIVE,
        (Arg("a", "A", "M,K", layout=S), Arg("b", "A", "P,Q", layout=S)),
        (Arg("y", "Y", "M,N"),),
        "a @ b, or a @ b.T with transpose_b; accumulated in float32, written as `dtype` or a's.",
        _MATMUL_ATTRS,
        infer=_matmul,
    ),
    Signature(
        "batched_matmul",
        Tier.PRIMITIVE,
        (Arg("a", "A", "G,M,K", layout=S), Arg("b", "A", "G,P,Q", layout=S)),
        (Arg("y", "Y", "G,M,N"),),
        "One product for each of the G leading indices; otherwise as matmul.",
        _MATMUL_ATTRS,
        infer=_matmul,
    ),
)
