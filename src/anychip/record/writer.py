"""Writes a record in a thread of its own, so that whoever is recorded never waits for a disk."""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from .lines import Header, Recorded, RecordError

log = logging.getLogger("anychip.record")

FLUSH_S = 1.0
"""What was put longer ago than this is in the file, whatever happens to the process."""
MOST_QUEUED = 8192


class RecordCounts(msgspec.Struct, frozen=True):
    """Requests. lost: they came faster than they could be written, or the file takes no more."""

    written: int
    lost: int
    file: str


class RecordWriter:
    """One record, from its opening to `close`. `put` may be called from any thread.

    path: must be in a folder that is there; a file that is there is kept as an older part. Files
    are readable by their owner alone. max_bytes: a file that is longer becomes PATH.1, PATH.1
    PATH.2, and so on; `keep` of them stay. Raises RecordError where it cannot be written.
    """

    def __init__(
        self, path: Path, header: Header, *, max_bytes: int, keep: int, room: int = MOST_QUEUED
    ) -> None:
        self._path, self._header = path, header
        self._max_bytes, self._keep = max_bytes, keep
        self._queue: queue.Queue[Callable[[], Recorded] | None] = queue.Queue(room)
        self._lock = threading.Lock()  # of `_lost`, which two threads count
        self._written = self._unflushed = self._lost = self._told = self._size = 0
        self._broken = False
        self._file = self._begin()
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self._thread.start()

    def put(self, make: Callable[[], Recorded]) -> None:
        """Have a line written. make: called in the writer's thread. Never waits, never raises:
        what there is no room for is counted."""
        try:
            self._queue.put_nowait(make)
        except queue.Full:
            self._lose()

    @property
    def counts(self) -> RecordCounts:
        """Of this run so far."""
        return RecordCounts(self._written + self._unflushed, self._lost, str(self._path))

    def close(self, limit_s: float = 10.0) -> None:
        """Write what is queued, for so long at most, and close the file."""
        try:
            self._queue.put(None, timeout=limit_s)
        except queue.Full:
            log.error("record: the disk does not keep up; what is queued is lost")
            return
        self._thread.join(limit_s)
        self._tell_lost()

    def _run(self) -> None:
        due = time.monotonic() + FLUSH_S
        while True:
            try:
                make = self._queue.get(timeout=max(0.0, due - time.monotonic()))
                if make is None:
                    break
                self._write(make)
            except queue.Empty:
                pass
            if time.monotonic() >= due:
                self._flush()
                due = time.monotonic() + FLUSH_S
        self._flush()
        self._close()

    def _write(self, make: Callable[[], Recorded]) -> None:
        if self._broken:
            self._lose()
            return
        try:
            line = msgspec.json.encode(make()) + b"\n"
        except Exception as error:  # noqa: BLE001 (one line that cannot be written is not the end of the record)
            log.error("record: a request is lost: %s: %s", type(error).__name__, error)
            self._lose()
            return
        try:
            if self._size + len(line) > self._max_bytes and self._size > self._head:
                self._rotate()
            self._file.write(line)
            self._size += len(line)
            self._unflushed += 1
        except (OSError, RecordError) as error:
            self._break(error)
            self._lose()

    def _flush(self) -> None:
        self._tell_lost()
        if self._broken:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._break(error)
        else:
            self._written, self._unflushed = self._written + self._unflushed, 0

    def _break(self, error: Exception) -> None:
        """The record ends here; the server goes on."""
        log.error(
            "record: %s: nothing more is recorded: %s; mend that and start again to record again",
            self._path,
            error,
        )
        self._broken = True
        self._lose(self._unflushed)
        self._unflushed = 0

    def _close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            if not self._broken:
                self._break(error)

    def _begin(self) -> BinaryIO:
        """Open a new file with its header; one that is there becomes an older part."""
        try:
            if self._path.exists():
                _refuse_shared(self._path)
                self._shift()
            return self._create(self._path)
        except OSError as error:
            raise RecordError(f"{self._path}: {error.strerror or error}") from error

    def _create(self, path: Path) -> BinaryIO:
        """A file that was not there, with the header in it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.fdopen(os.open(path, flags, 0o600), "wb")
        self._hold(file)
        line = msgspec.json.encode(self._header) + b"\n"
        file.write(line)
        file.flush()
        self._size = self._head = len(line)
        return file

    def _hold(self, file: BinaryIO) -> None:
        """Keep other writers away; some shared folders have no locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            log.warning(
                "record: %s cannot be locked (%s): see to it that no other server writes it",
                self._path,
                error.strerror,
            )

    def _rotate(self) -> None:
        """The next part takes the record's name with its header in it: no reader meets less."""
        self._file.flush()
        self._written, self._unflushed = self._written + self._unflushed, 0
        self._file.close()
        self._header = msgspec.structs.replace(self._header, part=self._header.part + 1)
        coming = Path(f"{self._path}.next")
        coming.unlink(missing_ok=True)  # of a writer that was killed in here
        self._file = self._create(coming)
        self._shift()
        coming.replace(self._path)

    def _shift(self) -> None:
        """PATH becomes PATH.1, PATH.1 becomes PATH.2; the oldest of `keep` is overwritten."""
        parts = [self._path, *(Path(f"{self._path}.{n}") for n in range(1, self._keep + 1))]
        for older, newer in zip(parts[:0:-1], parts[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)
        if not self._keep:
            self._path.unlink()

    def _lose(self, count: int = 1) -> None:
        with self._lock:
            self._lost += count

    def _tell_lost(self) -> None:
        more = self._lost - self._told
        if more:
            self._told += more
            log.warning("record: %d requests are lost, %d in all", more, self._told)


def check_place(path: Path) -> None:
    """Raise RecordError where no record can be written, before anything else is done."""
    folder = path.parent
    if path.is_dir() or path.is_symlink() or (path.exists() and not path.is_file()):
        raise RecordError(f"{path} is no plain file; name another")
    if not folder.is_dir():
        raise RecordError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise RecordError(f"{path}: the folder {folder} cannot be written to; name another")
    if path.exists():
        try:
            _refuse_shared(path)
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror or error}") from error


def _refuse_shared(path: Path) -> None:
    """Raise RecordError for a record that is being written: two writers would move each other's
    file away, and each would go on in the other's older parts. OSError where it cannot be read."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RecordError(
                f"{path} is being written by another server; name another file, or end that server"
            ) from error
        except OSError as error:
            log.debug("record: %s: its folder has no locks: %s", path, error.strerror)
