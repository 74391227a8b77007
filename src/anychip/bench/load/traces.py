"""Traces of requests as one form: our record, Azure's, BurstGPT's, Mooncake's; told by content."""

from __future__ import annotations

import csv
import itertools
import math
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from anychip.record.lines import Header, Recorded, RecordError
from anychip.record.reader import is_header, read_record

from .mooncake import BLOCK, read_blocks
from .trace_file import TraceError, first_line

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURST = ("Timestamp", "Request tokens", "Response tokens")
_FORMATS = (
    "known are AnyChip's record (JSON lines with a header), Azure's CSV (TIMESTAMP, ContextTokens,"
    " GeneratedTokens), BurstGPT's CSV (Timestamp, Request tokens, Response tokens) and Mooncake's"
    " JSON lines (timestamp, input_length, output_length, hash_ids)"
)
MOST_TOKENS = 2**31 - 1
"""Of a prompt or an answer: more is a torn or foreign file, and no array holds such ids."""
_ROTATIONS, _ROTATING_S = 20, 0.05
_MOMENT = re.compile(r"([\d-]+[ T][\d:]+)(\.\d+)?(?:Z|[+-]\d\d:\d\d)?")


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a trace.

    at_s: from the first one. input_tokens: None where nobody counted. blocks: what its prompt is
    made of; equal ids at the beginning of two prompts are equal tokens. prompt, text, messages: the
    prompt itself, where it was kept. params, grammar, space: as in `Recorded`. max_tokens: what it
    asked for; output_tokens: what it got. response: those tokens, where they were kept.
    """

    at_s: float
    input_tokens: int | None
    output_tokens: int
    blocks: tuple[str | int, ...] = ()
    prompt: tuple[int, ...] | None = None
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] = {}
    grammar: Mapping[str, str] | None = None
    space: str = ""
    max_tokens: int | None = None
    response: tuple[int, ...] | None = None


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """kind: record, azure, burstgpt or mooncake. block: tokens of a block; 0: there are none.
    notes: what was left out of the file, or is not whole. header: of a record."""

    kind: str
    requests: tuple[Traced, ...]
    block: int = 0
    notes: tuple[str, ...] = ()
    header: Header | None = None

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return max((one.at_s for one in self.requests), default=0.0)


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """The first `limit` requests of a file. Raises TraceError."""
    try:
        trace = _read_rotating(path, limit)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        text = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        if isinstance(error, OSError):
            text = error.strerror or text
        raise TraceError(f"{path}: {text}") from error
    if not trace.requests:
        left_out = f" ({trace.notes[0]})" if trace.notes else ": it has a header and nothing else"
        older = _older(path)
        before = f"; {older} is the part before it" if older.exists() else ""
        raise TraceError(f"{path}: no request in it{left_out}{before}")
    for number, one in enumerate(trace.requests, 1):
        most = max(one.input_tokens or 0, one.output_tokens)
        if most > MOST_TOKENS:
            raise TraceError(
                f"{path}: request {number} in order of time has {most} tokens; a prompt or an "
                f"answer has at most {MOST_TOKENS}: correct that line, or leave it out"
            )
    return trace


def _older(path: Path) -> Path:
    """What a record's rotation makes of it."""
    return Path(f"{path}.1")


def _read_rotating(path: Path, limit: int | None) -> Trace:
    """A record that is being written has no file for a moment, while it is rotated."""
    for _ in range(_ROTATIONS):
        try:
            return _read(path, limit)
        except FileNotFoundError:
            if not _older(path).exists():
                raise
            time.sleep(_ROTATING_S)
    return _read(path, limit)


def _read(path: Path, limit: int | None) -> Trace:
    first = first_line(path)
    if is_header(first):
        return _record(path, limit)
    if first.startswith(b"{"):
        if b'"hash_ids"' not in first:
            raise TraceError(f"{path}: not a trace that is known: {_FORMATS}")
        return _mooncake(path, limit)
    head = [name.strip() for name in first.decode(errors="replace").split(",")]
    for kind, names in (("azure", AZURE), ("burstgpt", BURST)):
        if set(names) <= set(head):
            return _table(path, limit, kind)
    raise TraceError(f"{path}: not a trace that is known: {_FORMATS}")


def _mooncake(path: Path, limit: int | None) -> Trace:
    calls = read_blocks(path, limit)
    start = min(call.timestamp for call in calls)
    requests = [
        Traced(
            at_s=(call.timestamp - start) / 1000,
            input_tokens=call.input_length,
            output_tokens=call.output_length,
            blocks=call.hash_ids,
        )
        for call in calls
    ]
    return Trace(kind="mooncake", requests=_ordered(requests), block=BLOCK)


def _table(path: Path, limit: int | None, kind: str) -> Trace:
    """A CSV file of arrival times and two lengths; prompts share nothing."""
    names, moment = (AZURE, _seconds) if kind == "azure" else (BURST, _finite)
    found: list[tuple[float, int, int]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        for number, row in enumerate(itertools.islice(rows, limit), 2):
            when, prompt, answer = (row[name] for name in names)
            try:
                found.append((moment(when), int(prompt), int(answer)))
            except (TypeError, ValueError) as error:
                raise TraceError(f"{path}, line {number}: {row}: {error}") from error
    start = min((at for at, _, _ in found), default=0.0)
    requests = [
        Traced(at_s=at - start, input_tokens=prompt, output_tokens=answer)
        for at, prompt, answer in found
        if prompt > 0 and answer > 0
    ]
    left_out = len(found) - len(requests)
    notes = (f"{left_out} requests without a prompt or an answer are left out",) if left_out else ()
    return Trace(kind=kind, requests=_ordered(requests), notes=notes)


def _finite(text: str) -> float:
    """Seconds; ValueError for what is no time: NaN would make all times NaN."""
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is no time in seconds, such as 45.5")
    return seconds


def _seconds(text: str) -> float:
    """Of a moment such as 2023-11-16 18:17:03.9799600; digits behind microseconds count."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time such as 2023-11-16 18:17:03.9799600")
    base = datetime.fromisoformat(found[1]) - datetime(1970, 1, 1)
    return base.total_seconds() + float(found[2] or 0)


def _record(path: Path, limit: int | None) -> Trace:
    try:
        record = read_record(path)
    except RecordError as error:
        raise TraceError(str(error)) from error
    notes = ["the last line is torn, as a crash leaves it; it is left out"] if record.torn else []
    asked = record.requests[:limit]
    lines = [line for line in asked if not (line.error or "").startswith("http 4")]
    if len(lines) < len(asked):
        left_out = len(asked) - len(lines)
        notes.append(f"{left_out} requests that the server refused back then are left out")
    start = min((line.at_s for line in lines), default=0.0)
    requests = [_traced(line, start) for line in lines]
    if any(line.blocks is not None for line in lines):
        notes.append("the record holds lengths alone: prompts are made up, beginnings shared")
    return Trace(
        kind="record",
        requests=tuple(requests),
        block=record.header.block,
        notes=tuple(notes),
        header=record.header,
    )


def _traced(line: Recorded, start: float) -> Traced:
    return Traced(
        at_s=line.at_s - start,
        input_tokens=line.prompt_tokens,
        output_tokens=max(1, line.response_tokens),
        blocks=tuple(line.blocks or ()),
        prompt=None if line.prompt is None else tuple(line.prompt),
        text=line.text,
        messages=tuple(line.messages or ()),
        params=line.params,
        grammar=line.grammar,
        space=line.space,
        max_tokens=line.max_tokens,
        response=tuple(line.response) if line.response else None,
    )


def _ordered(requests: list[Traced]) -> tuple[Traced, ...]:
    return tuple(sorted(requests, key=lambda one: one.at_s))
