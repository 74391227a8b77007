"""Operators of the kunlun chip: kernels/operators.tsv says what serves each, the shim calls it.

Which vendor calls are made for one, in which units, is the shim's business.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from pathlib import Path

from anychip.chips.kunlun.memory import ERRORS, KERNELS
from anychip.contract.cache import HND, CacheSpec
from anychip.contract.operators import CallSpec, OperatorTable
from anychip.contract.tensor import Tensor
from anychip.sdkbase import calls
from anychip.sdkbase.implementations import Functions, Guard, sizes, table_of
from anychip.sdkbase.stream import Stream
from anychip.sdkbase.table import rows

TABLE = KERNELS / "operators.tsv"
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256, 512)
MOST_ROWS = 1023
"""What the vendor's attention over pages takes."""


def _no_limits(call: CallSpec) -> str | None:
    return None


def _rotation(call: CallSpec) -> str | None:
    (q, table), dim = sizes(call, "q", "cos_sin"), call.attrs["rotary_dim"]
    if table[1] != dim or dim % 2 or dim > q[2]:
        return f"rotary_dim {dim} with heads of {q[2]} and a table of {table[1]}"
    partial = dim != q[2] and not call.attrs["neox"]
    return "neighbours are rotated over whole heads alone" if partial else None


def _layout(call: CallSpec) -> str | None:
    cache = call.inputs["cache"]
    assert isinstance(cache, CacheSpec)
    layout = cache.group.layout
    return None if layout == HND else f"cache layout {layout}, it covers {HND}"


def _heads(call: CallSpec) -> str | None:
    (_, heads, _), (_, _, groups, _) = sizes(call, "q", "cache")
    text = f"{heads} query heads are no multiple of {groups} KV heads"
    return text if heads % groups else _layout(call)


def _vendor_attention(call: CallSpec) -> str | None:
    (_, _, dim), (_, size, _, _), (rows, pages) = sizes(call, "q", "cache", "page_table")
    asked = call.attrs
    reasons = {
        f"heads of {dim}": dim not in HEAD_SIZES,
        f"{rows:,} rows, it takes {MOST_ROWS:,}": rows > MOST_ROWS,
        "it has no soft cap": asked["softcap"] > 0,
        "it is causal": not asked["causal"],
        "it ignores a window": 0 < asked["window"] < pages * size,
        f"it scales by 1 / sqrt({dim})": abs(asked["scale"] * sqrt(dim) - 1) > 1e-6,
    }
    return next((reason for reason, holds in reasons.items() if holds), None) or _heads(call)


GUARDS: dict[str, Guard] = {
    "": _no_limits,
    "rotation": _rotation,
    "layout": _layout,
    "heads": _heads,
    "vendor attention": _vendor_attention,
}
"""Words of the table's column `guard`."""


class Shim(calls.Shim):
    """The shim of kernels/. address: of a tensor on the card. Raises ChipError."""

    def __init__(self, path: Path | str, address: Callable[[Tensor], int]) -> None:
        super().__init__(path, "anychip_kunlun", ERRORS, _space, address)


def _space(status: int) -> str:
    """The library that a status is from: XDNN's are small, XRE's begin at 700; signs differ."""
    return "XRE" if abs(status) >= 700 else "XDNN"


def operator_table(shim: Functions, stream: Stream, *, simulated: bool = False) -> OperatorTable:
    """Every row that the shim was built with, on the queue.

    simulated: a simulator is what was assumed, so that nothing has to be proved on it.
    """
    return table_of(rows(TABLE), shim, stream, GUARDS, proved=simulated)
