"""Cases of the primitives: empty, one, odd sizes, sizes around vector widths, strided views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.contract.catalogue.primitives import BINARY, COMPARE, REDUCE, UNARY
from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, apart, changed, draw, scaled, turned
from anychip.ops.oracle.arrays import Array

POSITIVE = ("log", "rsqrt", "sqrt", "pow")
SHAPES = ((0, 5), (1,), (3, 33), (2, 3, 65), (1, 128))
INTEGER_OPS = ("add", "sub", "mul", "maximum", "minimum")


def values_for(op: str, source: Draw, *shape: int) -> Array:
    """Away from zero, so that a changed input always shows."""
    if op in POSITIVE:
        return source.uniform(*shape, low=0.2, high=3)
    x = source.normal(*shape, scale=2)
    away: Array = x + np.copysign(np.float32(0.75), x)
    return away


def _views(source: Callable[..., Array]) -> dict[str, Array]:
    """Arrays by name: shapes, then a transposed, a narrowed and a stretched view."""
    found = {"x".join(map(str, shape)): source(*shape) for shape in SHAPES}
    found["transposed"] = turned(source(17, 9))
    found["narrowed"] = source(6, 40)[:, 3:20]
    found["stretched"] = np.broadcast_to(source(1, 13), (4, 13))
    return found


def _one(op: str, name: str, inputs: dict[str, Any], **attrs: Any) -> Case:
    """A case whose control grows its first input."""
    first = next(iter(inputs))
    control = scaled(inputs, first) if inputs[first].size else None
    return Case(op, name, inputs, attrs, control)


def unary(op: str) -> list[Case]:
    """Shapes and views."""
    source = draw(op)
    views = _views(lambda *shape: values_for(op, source, *shape))
    if op == "round":
        views["halves go to even"] = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], np.float32)
    if op in ("sigmoid", "tanh", "silu", "gelu_tanh"):
        views["saturated"] = np.array([-200, -1, 0.5, 200], np.float32)
    if op in (*POSITIVE, "abs"):
        return [_one(op, name, {"x": x}) for name, x in views.items()]
    return [
        Case(op, n, {"x": x}, {}, Control("x negated", {"x": -x}) if x.size else None)
        for n, x in views.items()
    ]


def binary(op: str) -> list[Case]:
    """The same views, broadcasting both ways, int32 where it is used."""
    source = draw(op)
    views = _views(lambda *shape: values_for(op, source, *shape))
    pairs = {name: (x, values_for(op, source, *x.shape)) for name, x in views.items()}
    pairs["row by column"] = (values_for(op, source, 5, 1), values_for(op, source, 1, 65))
    pairs["by one number"] = (values_for(op, source, 4, 7), values_for(op, source, 1))
    pairs["one number by"] = (values_for(op, source, 1), values_for(op, source, 2, 4, 7))
    if op in INTEGER_OPS:
        pairs["int32"] = (
            source.integers(3, 33, low=-9, high=9),
            source.integers(33, low=1, high=9),
        )
    cases = []
    for name, (a, b) in pairs.items():
        grown = {"a": (a * 1.5).astype(a.dtype), "b": b}
        if op in ("maximum", "minimum"):
            grown["b"] = (b * 1.5).astype(b.dtype)
        control = Control("grown by half", grown) if a.size else None
        cases.append(Case(op, name, {"a": a, "b": b}, {}, control))
    return cases


def compare(op: str) -> list[Case]:
    """Small integers, so that equal ones occur, as floats and as int32."""
    source = draw(op)
    cases = []
    for name, left, right in (
        ("empty", (0, 5), (0, 5)),
        ("3x33", (3, 33), (3, 33)),
        ("row by column", (9, 1), (1, 65)),
    ):
        whole = {"a": source.integers(*left, high=4), "b": source.integers(*right, high=4)}
        for kind in (np.float32, np.int32):
            inputs = {n: v.astype(kind) for n, v in whole.items()}
            control = Control("a one more", {"a": inputs["a"] + kind(1)}) if 0 not in left else None
            cases.append(Case(op, f"{name} {kind.__name__}", inputs, {}, control))
    return cases


def where(op: str) -> list[Case]:
    """Floats, int32, a stretched condition, a NaN that is not chosen."""
    source = draw(op)
    cases = []
    shapes = (((0, 5), (0, 5)), ((3, 33), (3, 33)), ((9, 1), (9, 65)), ((2, 1, 33), (1,)))
    for mask, values in shapes:
        condition = source.integers(*mask, high=2).astype(bool)
        a, b = source.normal(*values), source.normal(*mask)
        control = Control("a and b exchanged", {"a": b, "b": a}) if condition.size else None
        cases.append(
            Case(op, f"{mask} {values}", {"condition": condition, "a": a, "b": b}, {}, control)
        )
    condition = np.array([True, False, True])
    whole = {"condition": condition, "a": np.array([1, 2, 3], np.int32), "b": np.zeros(1, np.int32)}
    cases.append(Case(op, "int32", whole, {}, Control("other a", {"a": whole["a"] + np.int32(1)})))
    hidden = np.array([1, np.nan, 3], np.float32)
    given = {"condition": condition, "a": hidden, "b": np.ones(1, np.float32)}
    cases.append(Case(op, "hides a NaN", given, {}, Control("other b", {"b": given["b"] + 1})))
    return cases


def reduce(op: str) -> list[Case]:
    """Last dimensions of 1 and around vector widths."""
    source = draw(op)
    views = _views(source.normal)
    views |= {str(n): source.normal(3, n, mean=0.5) for n in (1, 31, 64, 1000)}
    return [_one(op, name, {"x": x}) for name, x in views.items()]


def copy(op: str) -> list[Case]:
    """Any view of any dtype."""
    source = draw(op)
    cases = [_one(op, name, {"x": x}) for name, x in _views(source.normal).items()]
    cases.append(_one(op, "int32", {"x": turned(source.integers(7, 5, high=100))}))
    return cases


def cast(op: str) -> list[Case]:
    """Between all types that programs use; halves to even, truncation."""
    source = draw(op)
    x = source.normal(3, 33, scale=20)
    cases = [
        _one(op, f"float to {t}", {"x": x}, dtype=t)
        for t in ("float32", "float16", "bfloat16", "int32")
    ]
    whole = source.integers(4, 9, low=-50, high=50)
    cases += [_one(op, f"int32 to {t}", {"x": whole}, dtype=t) for t in ("float32", "int8")]
    flags = whole > 0
    control = Control("flags inverted", {"x": ~flags})
    cases.append(Case(op, "bool to float32", {"x": flags}, {"dtype": "float32"}, control))
    cases.append(Case(op, "empty", {"x": x[:0]}, {"dtype": "bfloat16"}))
    cases.append(_one(op, "transposed", {"x": turned(x)}, dtype="bfloat16"))
    return cases


def fill(op: str) -> list[Case]:
    """Values and shapes."""
    cases = []
    for shape, value, dtype in (
        ((0, 3), 1.0, "float32"),
        ((1,), -2.5, "float32"),
        ((3, 33), 7.0, "float32"),
        ((5,), -3.0, "int32"),
    ):
        attrs = {"shape": shape, "value": value, "dtype": dtype}
        control = changed("value", value + 1) if 0 not in shape else None
        cases.append(Case(op, f"{shape} {dtype}", {}, attrs, control))
    return cases


def arange(op: str) -> list[Case]:
    """Lengths; the control counts one less far, over the same elements."""
    return [
        Case(op, f"{n} {t}", {}, {"length": n, "dtype": t})
        for n in (0, 1, 2, 127, 1000)
        for t in ("int32", "float32")
    ]


def cumsum(op: str) -> list[Case]:
    """Rows of floats, as probabilities are, and of int32."""
    source = draw(op)
    cases = [_one(op, str(n), {"x": source.uniform(3, n)}) for n in (1, 2, 65, 1000)]
    cases.append(_one(op, "int32", {"x": source.integers(2, 9, high=5)}))
    cases.append(_one(op, "empty", {"x": source.normal(0, 5)}))
    return cases


def argmax(op: str) -> list[Case]:
    """Ties, negative rows, rows apart, NaN among numbers and alone."""
    source = draw(op)
    cases = []
    spotted = source.normal(5, 33)
    spotted[0, ::2] = spotted[1, :20] = spotted[2] = np.nan
    spotted[3] = [np.nan, *[-np.inf] * 32]
    for name, x in (
        ("empty", source.normal(0, 5)),
        ("one", source.normal(4, 1)),
        ("1000", source.normal(3, 1000)),
        ("all negative", source.uniform(5, 33, low=-9, high=-1)),
        ("ties", source.integers(6, 65, high=3).astype(np.float32)),
        ("rows apart", apart(source.normal(4, 33))),
        ("NaN", spotted),
    ):
        turn = Control("x negated", {"x": -x}) if x.size and x.shape[-1] > 1 else None
        cases.append(Case(op, name, {"x": x}, {}, turn))
    return cases


def ordering(op: str) -> list[Case]:
    """topk and sort: ties keep their order."""
    source = draw(op)
    cases = []
    for name, x in (
        ("empty", source.normal(0, 5)),
        ("one", source.normal(4, 1)),
        ("65", source.normal(3, 65)),
        ("1000", source.normal(2, 1000)),
        ("ties", source.integers(3, 33, high=4).astype(np.float32)),
    ):
        for k in sorted({1, min(7, x.shape[-1]), x.shape[-1]}) if op == "topk" else (0,):
            attrs = {"k": k} if k else {}
            cases.append(_one(op, f"{name} {k or ''}".strip(), {"x": x}, **attrs))
    return cases


def histogram(op: str) -> list[Case]:
    """Bins that stay empty, no index at all."""
    source = draw(op)
    cases = []
    for count, bins in ((0, 3), (1, 1), (100, 7), (9, 40)):
        index = source.integers(count, high=bins)
        moved = Control("all the last bin", {"index": np.full_like(index, bins - 1)})
        cases.append(
            Case(
                op,
                f"{count} in {bins}",
                {"index": index},
                {"bins": bins},
                moved if bins > 1 and count else None,
            )
        )
    return cases


def gather(op: str) -> list[Case]:
    """Repeated rows, a table of int32, rows apart, an index of two dimensions."""
    source = draw(op)
    tables = {
        "float": source.normal(9, 33),
        "int32": source.integers(9, 5, high=100),
        "one column": source.normal(9, 1),
        "rows apart": apart(source.normal(9, 2, 8)),
        "vector": source.normal(9),
    }
    cases = [
        _one(op, n, {"table": t, "index": source.integers(13, high=9)}) for n, t in tables.items()
    ]
    table, pairs = source.normal(9, 4), source.integers(2, 3, high=9)
    cases.append(_one(op, "2x3 indices", {"table": table, "index": pairs}))
    cases.append(Case(op, "empty", {"table": table, "index": pairs[0, :0]}))
    return cases


def scatter(op: str) -> list[Case]:
    """Skipped indices; for the sum, repeated ones."""
    source = draw(op)
    cases = []
    for name, shape, count in (
        ("vector rows", (9, 33), 5),
        ("blocks", (9, 2, 8), 7),
        ("empty", (4, 3), 0),
    ):
        target, rows = source.normal(*shape), source.normal(count, *shape[1:])
        index = source.distinct(count, high=shape[0])
        index[1:2] = -1
        if op == "scatter_add_rows":
            index[3:] = index[2:3]
        inputs = {"target": target, "source": rows, "index": index}
        cases.append(Case(op, name, inputs, {}, scaled(inputs, "source") if count else None))
    if op == "scatter_rows":
        inputs = {
            "target": target,
            "source": apart(source.normal(3, 3)),
            "index": np.array([2, 0, 3], np.int32),
        }
        cases.append(Case(op, "rows apart", inputs, {}, scaled(inputs, "source")))
    return cases


def product(op: str) -> list[Case]:
    """matmul and batched_matmul: both forms of b, strided operands, sizes around tiles."""
    source = draw(op)
    lead = (3,) if op == "batched_matmul" else ()
    cases = []
    sizes = ((0, 5, 4), (1, 1, 1), (3, 33, 17), (16, 64, 32), (17, 65, 33), (2, 1000, 5))
    for m, k, n in sizes:
        a, b = source.normal(*lead, m, k), source.normal(*lead, k, n)
        cases.append(_one(op, f"{m}x{k}x{n}", {"a": a, "b": b}))
        flipped = np.ascontiguousarray(b.swapaxes(-1, -2))
        cases.append(_one(op, f"{m}x{k}x{n} b.T", {"a": a, "b": flipped}, transpose_b=True))
    square = {"a": turned(source.normal(*lead, 8, 8)), "b": turned(source.normal(*lead, 8, 8))}
    cases.append(
        Case(op, "strided, not b.T", square, {"transpose_b": False}, changed("transpose_b", True))
    )
    cases.append(_one(op, "as float32", dict(square), dtype="float32"))
    return cases


PRIMITIVES: dict[str, Callable[[str], list[Case]]] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(COMPARE, compare),
    **dict.fromkeys(REDUCE, reduce),
    **dict.fromkeys(("topk", "sort"), ordering),
    **dict.fromkeys(("scatter_rows", "scatter_add_rows"), scatter),
    **dict.fromkeys(("matmul", "batched_matmul"), product),
    "copy": copy,
    "cast": cast,
    "fill": fill,
    "arange": arange,
    "cumsum": cumsum,
    "where": where,
    "argmax": argmax,
    "histogram": histogram,
    "gather_rows": gather,
}
