"""Reads a record back, also one whose writer was killed."""

from __future__ import annotations

import codecs
from pathlib import Path

import msgspec

from .lines import FORMAT, VERSION, Header, Recorded, RecordError


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """header: the first one. requests: by arrival, `at_s` counted from the first header. torn: the
    last line is not whole, as a writer that is killed leaves it."""

    header: Header
    requests: tuple[Recorded, ...]
    torn: bool


_header = msgspec.json.Decoder(Header)
_request = msgspec.json.Decoder(Recorded)


def is_header(line: bytes) -> bool:
    """Whether a line begins a record."""
    return line.startswith(b'{"format":"' + FORMAT.encode())


def read_record(path: Path) -> Record:
    """A record, or several parts of one written behind each other. Raises RecordError, OSError."""
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)  # an editor may have put one there
    lines = data.split(b"\n")
    torn = bool(lines.pop())  # what stands behind the last end of line
    if not lines and is_header(data):
        raise RecordError(f"{path}: its only line is torn: nothing of the record is left")
    if not lines or not is_header(lines[0]):
        raise RecordError(f"{path}: not a record: its first line is no header of {FORMAT}")
    headers: list[Header] = []
    requests: list[Recorded] = []
    for number, line in enumerate(lines, 1):
        try:
            if is_header(line):
                headers.append(_checked(_header.decode(line), path))
                continue
            requests.append(_request.decode(line))
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise RecordError(f"{path}, line {number}: {error}") from error
    first = headers[0]
    placed = (
        msgspec.structs.replace(one, at_s=max(0.0, one.at - first.started)) for one in requests
    )
    ordered = placed if len(headers) > 1 else iter(requests)
    by_arrival = tuple(sorted(ordered, key=lambda one: one.at_s))
    return Record(header=first, requests=by_arrival, torn=torn)


def _checked(header: Header, path: Path) -> Header:
    if header.version != VERSION:
        raise RecordError(
            f"{path}: a record of version {header.version}; this AnyChip reads version {VERSION}"
        )
    return header
