"""The operators' table from a file: which function of the shim serves what, resting on what.

Columns: operator, name (the shim's function), call (of the vendor's, for people), types, compute,
guard (a word of the chip's), reads_host (yes or nothing), evidence (of the vendor's call: `guess`
waits for its proof), assumed (what of its meaning is a guess). The order is that of preference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Protocol

from anychip.contract.formats import PLAIN_FORMATS
from anychip.contract.operators import (
    Call,
    CallSpec,
    DtypeRow,
    Implementation,
    Launch,
    OperatorTable,
)
from anychip.contract.tensor import Shape
from anychip.sdkbase.calls import CODES, MAX_RANK
from anychip.sdkbase.stream import Stream

CLASSES = {"floats": PLAIN_FORMATS, "numbers": (*PLAIN_FORMATS, "int32"), "any": tuple(CODES)}
"""Words that stand for several dtypes in the table."""

Row = Mapping[str, str]
Guard = Callable[[CallSpec], str | None]
"""Why a call is declined; None where it is covered."""


class Functions(Protocol):
    """What is needed of a shim; see `calls.Shim`."""

    def has(self, name: str) -> bool:
        """Whether it was built with this row."""

    def workspace(self, name: str, spec: CallSpec) -> int:
        """Bytes that a call needs."""

    def prepared(self, name: str, call: Call) -> Launch:
        """What queues the vendor's calls."""


def sizes(call: CallSpec, *names: str) -> list[Shape]:
    """Shapes of these arguments, or of all that are present."""
    specs = {**call.inputs, **call.outputs}
    return [s.shape for s in (specs[n] for n in names or specs) if s is not None]


def table_of(
    rows: Sequence[Row],
    shim: Functions,
    stream: Stream,
    guards: Mapping[str, Guard],
    *,
    proved: bool,
) -> OperatorTable:
    """Every row that the shim was built with. guards: reasons to decline by the table's words.

    proved: what rests on a guess needs no proof here (on a simulator, which is what was guessed).
    """
    found: list[Implementation] = []
    for row in rows:
        if shim.has(row["name"]):
            one = _implementation(row, shim, stream, guards[row["guard"]])
            guess = row["evidence"] == "guess" and not proved
            found += _by_dtype(one) if guess else [one]
    return OperatorTable(tuple(found))


def _by_dtype(guess: Implementation) -> Iterator[Implementation]:
    """An implementation for each combination of dtypes, to be proved by itself: each is another
    function of a template in the vendor's library."""
    for row in guess.dtypes:
        for types in product(*row.types.values()):
            one = DtypeRow(dict(zip(row.types, ((t,) for t in types), strict=True)), row.compute)
            name = ".".join((guess.id, *dict.fromkeys(types)))
            yield replace(guess, id=name, dtypes=(one,), unproved=True)


def _implementation(row: Row, shim: Functions, stream: Stream, guard: Guard) -> Implementation:
    name = row["name"]

    def prepare(call: Call) -> Launch:
        put = shim.prepared(name, call)
        return lambda: stream.put(row["operator"], put)

    return Implementation(
        op=row["operator"],
        id=f"{stream.chip}.{name}",
        prepare=prepare,
        dtypes=_dtype_rows(row),
        when=lambda call: _few_dimensions(call) or guard(call),
        workspace=lambda call: shim.workspace(name, call),
        reads_host=row["reads_host"] == "yes",
        call=row["call"],
        assumed=row["assumed"],
    )


def _few_dimensions(call: CallSpec) -> str | None:
    most = max(map(len, sizes(call)))
    return f"{most} dimensions, it takes {MAX_RANK}" if most > MAX_RANK else None


def _dtype_rows(row: Row) -> tuple[DtypeRow, ...]:
    """From "X=floats W=float32; X=float16 W=float16": rows between semicolons."""
    parts = (dict(word.split("=") for word in part.split()) for part in row["types"].split(";"))
    kinds = ({k: CLASSES.get(v, (v,)) for k, v in part.items()} for part in parts)
    return tuple(DtypeRow(kind, row["compute"]) for kind in kinds)
