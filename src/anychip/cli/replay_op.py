"""`anychip replay-op FILE`: an operator call that --check-ops saved, run again on a chip."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from anychip.cli.output import drawing, say
from anychip.config import FlagParser, ServeConfig, parse

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.ops.saved import SavedCall
    from anychip.run.replay import Replayed

WIDE = 200
"""Columns of a table that no terminal shows."""

_ONLY_THERE = (
    "It diverged where it was saved and agrees here: compare the versions, then look at what lay"
    " around the call there: memory shared with an input, work queued before it, a cold cache."
)


def add_arguments() -> FlagParser:
    """The parser of this command; its settings are those of `anychip serve`."""
    parser = FlagParser(
        "anychip replay-op",
        "Run a saved operator call on a chip: by every implementation that covers it and by its"
        " recipe, each compared with the oracle. Exit code 1 where the asked one diverges. Replay"
        " files that you trust: their index values reach the chip.",
    )
    parser.add_argument("file", metavar="FILE", help="a file that --check-ops wrote")
    parser.add_argument(
        "--backend", metavar="CHIP", help=f"chip to run it on [{ServeConfig.backend}]"
    )
    parser.add_argument("--device-index", metavar="N", help="which device of the chip [0]")
    parser.add_argument(
        "--chip-option", action="append", metavar="NAME=VALUE", help="option of the chip"
    )
    parser.add_argument(
        "--implementation",
        metavar="ID",
        help="run this one alone, or `composed` [all; the saved one is the asked one]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print what each implementation gives; 1 where the asked one diverges or cannot run."""
    config, namespace = parse(add_arguments(), argv)
    from anychip.ops.saved import load

    call = load(Path(namespace.file))
    rows = _rows(config, call, namespace.implementation)
    asked = _asked(rows, call, namespace.implementation)
    if namespace.json:
        text = msgspec.json.encode(_as_json(call, rows, asked))
        say(msgspec.json.format(text, indent=2).decode())
    else:
        _draw(config.backend, call, rows)
    wrong = [row.implementation for row in asked if not row.ok]
    if wrong:
        verb = "diverges or does not run" if len(wrong) == 1 else "diverge or do not run"
        print(f"anychip: {', '.join(wrong)} {verb} on {config.backend}", file=sys.stderr)
    return 1 if wrong or not asked else 0


def _rows(config: ServeConfig, call: SavedCall, only: str | None) -> list[Replayed]:
    from anychip.contract.discovery import open_chip
    from anychip.run.plan_run import chip_options
    from anychip.run.replay import replay

    chip = open_chip(config.backend, config.device_index, chip_options(config))
    try:
        return replay(call, chip, only)
    finally:
        chip.close()


def _asked(rows: Sequence[Replayed], call: SavedCall, only: str | None) -> list[Replayed]:
    """The rows that decide the exit code: the one named, the saved one, else all that ran."""
    from anychip.run.replay import AS_SAVED

    ran = [row for row in rows if row.kind != AS_SAVED]
    named = [row for row in ran if row.implementation == (only or call.implementation)]
    return named or [row for row in ran if row.verdict is not None]


def _draw(backend: str, call: SavedCall, rows: Sequence[Replayed]) -> None:
    with drawing(WIDE) as console:
        console.print(_head(call), highlight=False, markup=False, soft_wrap=True)
        console.print(_table(backend, rows))
        for row in rows:
            if row.differences:
                text = "; ".join(str(difference) for difference in row.differences)
                line = f"{row.implementation} ({row.kind}), worst first: {text}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
        if _only_there(call, rows):
            console.print(_ONLY_THERE, highlight=False, markup=False, soft_wrap=True)


def _only_there(call: SavedCall, rows: Sequence[Replayed]) -> bool:
    """Whether the implementation was wrong where it was saved and is right here."""
    from anychip.run.replay import AS_SAVED

    own = {row.kind == AS_SAVED: row for row in rows if row.implementation == call.implementation}
    return len(own) == 2 and not own[True].ok and own[False].ok


def _head(call: SavedCall) -> str:
    sizes = ", ".join(f"{name} {_size(value)}" for name, value in call.inputs.items())
    parts = ", ".join(f"{n} {'+'.join(p.format for p in ps)}" for n, ps in call.parts.items())
    seen = ", ".join(f"{name} {value}" for name, value in call.seen_on.items())
    lines = [f"{call.op}, saved by {call.implementation}: {call.verdict}", f"  seen on: {seen}"]
    lines += [f"  inputs: {sizes}{'; weights: ' + parts if parts else ''}"]
    lines += [f"  attributes: {', '.join(f'{n}={v}' for n, v in call.attrs.items()) or 'none'}"]
    return "\n".join(lines)


def _size(value: Any) -> str:
    """Shape and dtype of an input; a cache's are those of its keys."""
    array = getattr(value, "k", value)
    return "absent" if array is None else f"{array.dtype}{list(array.shape)}"


def _table(backend: str, rows: Sequence[Replayed]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("implementation", "kind", "error", "limit"):
        table.add_column(name, no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.title = f"on {backend}"
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row)))
    return table


def _cells(row: Replayed) -> tuple[str, ...]:
    if row.verdict is None:
        return row.implementation, row.kind, "", "", row.note
    verdict = row.verdict
    words = "agrees" if verdict.ok else "diverges"
    words += "" if verdict.conclusive else ", inconclusive"
    words += f"; {row.note}" if row.note else ""
    figures = (f"{verdict.relative_l2:.3g}", f"{verdict.limit:.3g}")
    return row.implementation, row.kind, *figures, words


def _as_json(call: SavedCall, rows: Sequence[Replayed], asked: Sequence[Replayed]) -> Any:
    return {
        "op": call.op,
        "saved": {"implementation": call.implementation, "verdict": call.verdict},
        "seen_on": dict(call.seen_on),
        "rows": [
            {
                "implementation": row.implementation,
                "kind": row.kind,
                "ok": row.ok,
                "asked": row in asked,
                "note": row.note,
                "verdict": row.verdict,
                "differences": row.differences,
            }
            for row in rows
        ],
    }
