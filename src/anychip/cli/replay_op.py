"""`anychip replay-op FILE`: an operator call that --check-ops saved, run again on a chip."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from anychip.cli.output import drawing, say
from anychip.config import ConfigError, FlagParser, ServeConfig, parse

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.ops.saved import SavedCall
    from anychip.run.replay import Replayed

WIDE = 200
"""Columns of a table that no terminal shows."""

_AROUND = (
    "look at what lay around the call there: memory shared with an input, work queued before it,"
    " a cold cache."
)

_OF_THE_RUN = ("step", "call")
"""What a saved call tells of the run, not of the chip."""


def add_arguments() -> FlagParser:
    """The parser of this command; its settings are those of `anychip serve`."""
    parser = FlagParser(
        "anychip replay-op",
        "Run a saved operator call on a chip: by every implementation that covers it and by its"
        " recipe, each compared with the oracle. Exit code 0: the asked one agrees; 1: it diverges"
        " or does not run; 2: the file, the chip or a flag cannot be used. Replay files that you"
        " trust: their index values reach the chip.",
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
    parser.show_examples(
        "anychip replay-op ~/.cache/anychip/divergences/FILE.npz --backend mychip",
        "anychip replay-op FILE.npz --backend mychip --implementation composed",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print what each implementation gives; 1 where the asked one diverges or cannot run."""
    config, namespace = parse(add_arguments(), argv)
    call, seen = _replayed(config, Path(namespace.file), namespace.implementation)
    rows = seen.rows
    asked = _asked(rows, call, namespace.implementation)
    if namespace.json:
        text = msgspec.json.encode(_as_json(call, seen, asked))
        say(msgspec.json.format(text, indent=2).decode())
    else:
        _draw(call, seen)
    wrong = [row.implementation for row in asked if not row.ok]
    if wrong:
        verb = "diverges or does not run" if len(wrong) == 1 else "diverge or do not run"
        print(f"anychip: {', '.join(wrong)} {verb} on {config.backend}", file=sys.stderr)
    if not asked:
        print(f"anychip: no implementation of {config.backend} covers the call", file=sys.stderr)
    return 1 if wrong or not asked else 0


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What this chip gives. here: its versions and options, by the names of a saved call."""

    backend: str
    rows: Sequence[Replayed]
    here: Mapping[str, str]


def _replayed(config: ServeConfig, path: Path, only: str | None) -> tuple[SavedCall, _Seen]:
    """Raises ConfigError where the file, the chip or the implementation cannot be used."""
    from anychip.contract.errors import ContractError
    from anychip.ops.saved import SavedCallError, load
    from anychip.run.replay import ReplayError

    try:
        call = load(path)
        return call, _seen(config, call, only)
    except (SavedCallError, ReplayError, ContractError) as error:
        raise ConfigError(str(error)) from error


def _seen(config: ServeConfig, call: SavedCall, only: str | None) -> _Seen:
    from anychip.contract.discovery import open_chip
    from anychip.run.divergences import seen_on
    from anychip.run.plan_run import chip_options
    from anychip.run.replay import replay

    chip = open_chip(config.backend, config.device_index, chip_options(config))
    given = {f"option {name}": value for name, value in config.chip_option.items()}
    try:
        here = {**seen_on(chip), "device": str(config.device_index), **given}
        return _Seen(config.backend, replay(call, chip, only), here)
    finally:
        chip.close()


def _asked(rows: Sequence[Replayed], call: SavedCall, only: str | None) -> list[Replayed]:
    """The rows that decide the exit code: the one named, the saved one, else all that ran."""
    from anychip.run.replay import AS_SAVED

    ran = [row for row in rows if row.kind != AS_SAVED]
    named = [row for row in ran if row.implementation == (only or call.implementation)]
    return named or [row for row in ran if row.verdict is not None]


def _draw(call: SavedCall, seen: _Seen) -> None:
    with drawing(WIDE) as console:
        console.print(_head(call), highlight=False, markup=False, soft_wrap=True)
        console.print(_table(seen.backend, seen.rows))
        for row in seen.rows:
            if row.differences:
                text = "; ".join(str(difference) for difference in row.differences)
                line = f"{row.implementation} ({row.kind}), worst first: {text}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
        if hint := _hint(call, seen):
            console.print(hint, highlight=False, markup=False, soft_wrap=True)


def _hint(call: SavedCall, seen: _Seen) -> str:
    """What may explain that it diverged where it was saved and not here; empty where it did."""
    if not _only_there(call, seen.rows):
        return ""
    text = "It diverged where it was saved and agrees here: "
    there = call.seen_on.get("chip", "unknown")
    if there != seen.backend:
        here = f"it was saved on {there}, this is {seen.backend}"
        return f"{text}{here}. Replay it there; then {_AROUND}"
    changed = [
        f"{name}: {call.seen_on.get(name, 'none')} then, {seen.here.get(name, 'none')} now"
        for name in dict.fromkeys((*call.seen_on, *seen.here))
        if name not in _OF_THE_RUN and call.seen_on.get(name) != seen.here.get(name)
    ]
    which = "; ".join(changed) or "the versions and options that were recorded are the same"
    return f"{text}the kernel or its version has changed since ({which}). If not, {_AROUND}"


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


def _as_json(call: SavedCall, seen: _Seen, asked: Sequence[Replayed]) -> Any:
    return {
        "op": call.op,
        "saved": {"implementation": call.implementation, "verdict": call.verdict},
        "seen_on": dict(call.seen_on),
        "hint": _hint(call, seen),
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
            for row in seen.rows
        ],
    }
