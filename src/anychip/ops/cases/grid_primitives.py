"""Sized cases of the elementwise primitives, of reductions and of what orders or moves rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from anychip.contract.catalogue.primitives import BINARY, COMPARE, REDUCE, UNARY
from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, changed
from anychip.ops.cases.grid_sizes import (
    FLAG,
    ROWS,
    WIDTHS,
    Arrays,
    Dimension,
    Family,
    Sizes,
    grown,
    negated,
    require,
)
from anychip.ops.cases.primitives import POSITIVE, values_for

T = Dimension("T", 3, ROWS)
N = Dimension("N", 33, WIDTHS)
FLAT = Dimension("F", 0, (1, 2, 7, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 65_537))
"""Elements of a vector in place of rows; 0: [T, N]."""
LARGE: tuple[Sizes, ...] = ({"T": 1025, "N": 65}, {"T": 65, "N": 1025}, {"T": 1, "N": 1})

_STRETCHED = (Dimension("Tb", 0, FLAG), Dimension("Nb", 0, FLAG))
"""Rows and columns of the second operand; 0: as many as the first has."""
_STRETCHES: tuple[Sizes, ...] = tuple(
    {"T": 1025, "N": 257, **stretched} for stretched in ({"Tb": 1}, {"Nb": 1}, {"Tb": 1, "Nb": 1})
)


def shape_of(sizes: Sizes) -> tuple[int, ...]:
    """[T, N], or a vector of F."""
    return (sizes["F"],) if sizes["F"] else (sizes["T"], sizes["N"])


def _second_shape(sizes: Sizes) -> tuple[int, ...]:
    if sizes["F"]:
        return shape_of(sizes)
    return sizes["Tb"] or sizes["T"], sizes["Nb"] or sizes["N"]


def _unary(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {"x": values_for(op, source, *shape_of(sizes))}


def _unary_control(case: Case) -> Control | None:
    indifferent = case.op in (*POSITIVE, "abs")
    return grown("x")(case) if indifferent else negated("x")(case)


def _binary(op: str, source: Draw, sizes: Sizes) -> Arrays:
    first, second = shape_of(sizes), _second_shape(sizes)
    return {"a": values_for(op, source, *first), "b": values_for(op, source, *second)}


def _binary_control(case: Case) -> Control | None:
    names = ("a", "b") if case.op in ("maximum", "minimum") else ("a",)
    more = {name: (case.inputs[name] * 1.5).astype(case.inputs[name].dtype) for name in names}
    return Control("grown by half", more) if case.inputs["a"].size else None


def _compare(op: str, source: Draw, sizes: Sizes) -> Arrays:
    """Small integers, so that equal ones occur."""
    a = source.integers(*shape_of(sizes), high=4).astype(np.float32)
    return {"a": a, "b": source.integers(*_second_shape(sizes), high=4).astype(np.float32)}


def _compare_control(case: Case) -> Control | None:
    """Every answer turned: a moves to the other side of b."""
    a, b = case.inputs["a"], case.inputs["b"]
    holds = {"lt": a < b, "le": a <= b, "eq": a == b}[case.op]
    turned = np.where(holds, b + 1, b if case.op == "eq" else b - 1).astype(a.dtype)
    return Control("every answer turned", {"a": turned}) if a.size else None


def _where(op: str, source: Draw, sizes: Sizes) -> Arrays:
    first, second = shape_of(sizes), _second_shape(sizes)
    condition = source.integers(*first, high=2).astype(bool)
    return {"condition": condition, "a": source.normal(*first), "b": source.normal(*second)}


def _where_control(case: Case) -> Control | None:
    if case.inputs["a"].size == 0:
        return None
    return Control("the condition inverted", {"condition": ~case.inputs["condition"]})


def _rows(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {"x": source.normal(sizes["T"], sizes["N"], mean=0.5)}


def _shares(op: str, source: Draw, sizes: Sizes) -> Arrays:
    """Rows as probabilities are."""
    return {"x": source.uniform(sizes["T"], sizes["N"])}


def _nothing(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {}


def _fill_attrs(sizes: Sizes) -> dict[str, Any]:
    return {"shape": shape_of(sizes), "value": 7.0, "dtype": "float32"}


def _fill_control(case: Case) -> Control | None:
    return None if 0 in case.attrs["shape"] else changed("value", 8.0)


def _histogram(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {"index": source.integers(sizes["N"], high=sizes["bins"])}


def _histogram_control(case: Case) -> Control | None:
    index, bins = case.inputs["index"], case.attrs["bins"]
    if index.size == 0 or bins == 1:
        return None
    return Control("every index in the next bin", {"index": (index + 1) % np.int32(bins)})


def _gather(op: str, source: Draw, sizes: Sizes) -> Arrays:
    index = source.integers(sizes["T"], high=sizes["P"])
    index[:1] = sizes["P"] - 1
    return {"table": source.normal(sizes["P"], sizes["N"]), "index": index}


def _scatter(op: str, source: Draw, sizes: Sizes) -> Arrays:
    """The second index is skipped; sums meet some rows more than once."""
    count, rows, width = sizes["T"], sizes["P"], sizes["N"]
    require(count <= rows, f"{op}: T = {count} different rows do not fit into P = {rows}")
    index = source.distinct(count, high=rows)
    if op == "scatter_add_rows":
        index[1::3] = index[::3][: len(index[1::3])]
    else:
        index[1:2] = -1
    target, added = source.normal(rows, width), source.normal(count, width)
    return {"target": target, "source": added, "index": index}


_ELEMENTS = (T, N, FLAT)
_UNARY = Family(_ELEMENTS, _unary, _unary_control, crossed=LARGE)
_BINARY = Family((*_ELEMENTS, *_STRETCHED), _binary, _binary_control, crossed=_STRETCHES)
_ROWS = Family((T, N), _rows, grown("x"), crossed=LARGE)
_ORDERED = Dimension("N", 33, (*WIDTHS, 32000))
_SCATTER = Family(
    (
        Dimension("T", 5, ROWS),
        Dimension("P", 1100, (5, 8, 9, 16, 17, 33, 257, 1025, 4097)),
        Dimension("N", 8, WIDTHS),
    ),
    _scatter,
    grown("source"),
    crossed=({"T": 1025, "P": 1025, "N": 65}, {"T": 1, "P": 1, "N": 1}),
)

PRIMITIVES: dict[str, Family] = {
    **dict.fromkeys((*UNARY, "copy"), _UNARY),
    **dict.fromkeys(BINARY, _BINARY),
    **dict.fromkeys(
        COMPARE, Family(_BINARY.dimensions, _compare, _compare_control, crossed=_STRETCHES)
    ),
    **dict.fromkeys(REDUCE, _ROWS),
    "cast": Family(
        _ELEMENTS, _unary, _unary_control, lambda sizes: {"dtype": "bfloat16"}, crossed=LARGE
    ),
    "where": Family(_BINARY.dimensions, _where, _where_control, crossed=_STRETCHES),
    "cumsum": Family((T, N), _shares, grown("x"), crossed=LARGE),
    "fill": Family(_ELEMENTS, _nothing, _fill_control, _fill_attrs, crossed=LARGE),
    "arange": Family(
        (Dimension("N", 33, (0, *WIDTHS, 65_537)),),
        _nothing,
        lambda case: None,
        lambda sizes: {"length": sizes["N"], "dtype": "int32"},
    ),
    "argmax": Family((T, _ORDERED), _rows, negated("x", least=2), crossed=LARGE),
    "sort": Family((T, _ORDERED), _rows, negated("x"), crossed=LARGE),
    "topk": Family(
        (T, _ORDERED, Dimension("k", 1, (1, 2, 7, 8, 9, 31, 32, 33))),
        _rows,
        negated("x"),
        lambda sizes: {"k": sizes["k"]},
        crossed=({"T": 1025, "N": 65, "k": 65}, {"N": 32000, "k": 50}, {"N": 1, "k": 1}),
    ),
    "histogram": Family(
        (
            Dimension("N", 100, (0, *WIDTHS, 65_537)),
            Dimension("bins", 40, (1, 2, 7, 33, 257, 1025)),
        ),
        _histogram,
        _histogram_control,
        lambda sizes: {"bins": sizes["bins"]},
    ),
    "gather_rows": Family(
        (Dimension("T", 5, ROWS), Dimension("P", 40, WIDTHS), Dimension("N", 33, WIDTHS)),
        _gather,
        grown("table", over="index"),
        crossed=({"T": 1025, "P": 1025, "N": 65}, {"T": 1, "P": 1, "N": 1}),
    ),
    "scatter_rows": _SCATTER,
    "scatter_add_rows": _SCATTER,
}
