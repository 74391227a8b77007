"""A record as a file: written in a thread, rotated, read back, torn, lost."""

from __future__ import annotations

import errno
import logging
import os
import signal
import stat
import subprocess
import sys
import threading

import msgspec
import pytest

from anychip.record.lines import BLOCK, FORMAT, VERSION, Header, Recorded, RecordError, Salt
from anychip.record.reader import read_record
from anychip.record.writer import RecordWriter, check_place
from served import ENVIRONMENT, wait_until

HEADER = Header(format=FORMAT, version=VERSION, started=1000.0, model="m")


def line(number: int, **fields) -> Recorded:
    return Recorded(id=number, at=1000.0 + number, at_s=float(number), **fields)


def write(path, *lines, max_bytes=2**20, keep=2, **options) -> RecordWriter:
    writer = RecordWriter(path, HEADER, max_bytes=max_bytes, keep=keep, **options)
    for one in lines:
        writer.put(lambda one=one: one)
    writer.close()
    return writer


def test_what_was_put_is_read_back_by_arrival(tmp_path):
    path = tmp_path / "record.jsonl"
    full = line(1, prompt=[1, 2], params={"temperature": 0.5}, response=[3], times=[0.25])
    writer = write(path, line(2), full)
    record = read_record(path)
    assert record.requests == (full, line(2)) and not record.torn
    assert record.header == HEADER
    assert writer.counts.written == 2 and writer.counts.lost == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_too_long_becomes_an_older_part(tmp_path):
    path = tmp_path / "record.jsonl"
    many = [line(n, text="x" * 1000) for n in range(12)]
    write(path, *many, max_bytes=4096, keep=2)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["record.jsonl", "record.jsonl.1", "record.jsonl.2"]
    parts = [read_record(tmp_path / name) for name in reversed(names)]
    assert [part.header.part for part in parts] == [1, 2, 3]
    assert [r.id for part in parts for r in part.requests] == list(range(3, 12))
    for name in names:
        assert (tmp_path / name).stat().st_size <= 4096
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_parts_behind_each_other_are_one_record(tmp_path):
    path, both = tmp_path / "record.jsonl", tmp_path / "both.jsonl"
    write(path, line(5))
    later = msgspec.structs.replace(HEADER, started=1004.0, part=1)
    writer = RecordWriter(path, later, max_bytes=2**20, keep=1)
    writer.put(lambda: Recorded(id=1, at=1006.0, at_s=2.0))
    writer.close()
    both.write_bytes((tmp_path / "record.jsonl.1").read_bytes() + path.read_bytes())
    assert [r.at_s for r in read_record(both).requests] == [5.0, 6.0]


def test_nothing_older_stays_where_none_is_kept(tmp_path):
    path = tmp_path / "record.jsonl"
    write(path, line(1), keep=0)
    write(path, line(2), keep=0)
    assert [p.name for p in tmp_path.iterdir()] == ["record.jsonl"]
    assert [r.id for r in read_record(path).requests] == [2]


def test_a_torn_last_line_is_told_and_a_bad_one_between_is_refused(tmp_path):
    path = tmp_path / "record.jsonl"
    write(path, line(1), line(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    record = read_record(path)
    assert record.torn and [r.id for r in record.requests] == [1]
    path.write_bytes(whole.replace(b'"id":1', b'"id":"x"'))
    with pytest.raises(RecordError, match="line 2: Expected `int`"):
        read_record(path)


def test_another_version_and_another_file_are_refused(tmp_path):
    path = tmp_path / "record.jsonl"
    path.write_text('{"format":"anychip-record","version":9,"started":0}\n')
    with pytest.raises(RecordError, match="version 9; this AnyChip reads version 1"):
        read_record(path)
    path.write_text("TIMESTAMP,ContextTokens\n")
    with pytest.raises(RecordError, match="its first line is no header"):
        read_record(path)


def test_who_puts_never_waits_and_what_has_no_room_is_counted(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    started, gate = threading.Event(), threading.Event()

    def slow() -> Recorded:
        started.set()
        gate.wait(30)
        return line(0)

    writer = RecordWriter(tmp_path / "r", HEADER, max_bytes=2**20, keep=0, room=2)
    writer.put(slow)
    assert started.wait(30)
    for number in range(1, 6):  # two find room
        writer.put(lambda number=number: line(number))
    assert writer.counts.lost == 3
    gate.set()
    writer.close()
    assert [r.id for r in read_record(tmp_path / "r").requests] == [0, 1, 2]
    assert "3 requests are lost, 3 in all" in caplog.text


def test_a_line_that_cannot_be_made_is_lost_alone(tmp_path, caplog):
    writer = write(tmp_path / "r", line(1, text="\ud800"), line(2))
    assert writer.counts.lost == 1
    assert [r.id for r in read_record(tmp_path / "r").requests] == [2]
    assert "a request is lost" in caplog.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_ends_the_record_and_nothing_else(tmp_path, caplog):
    writer = RecordWriter(tmp_path / "r", HEADER, max_bytes=2**20, keep=0)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file.fileno())
    os.close(full)
    for number in range(40):
        writer.put(lambda number=number: line(number, text="x" * 4000))
    writer.close()
    assert (writer.counts.written, writer.counts.lost) == (0, 40)
    assert "nothing more is recorded: [Errno 28] No space left on device" in caplog.text


CHILD = """
import sys, time
from pathlib import Path
from anychip.record.lines import *
from anychip.record.writer import RecordWriter
header = Header(format=FORMAT, version=VERSION, started=0.0)
writer = RecordWriter(Path(sys.argv[1]), header, max_bytes=2**40, keep=0)
number = 0
while True:
    number += 1
    writer.put(lambda n=number: Recorded(id=n, at=0.0, at_s=0.0, text="x" * 2000))
    time.sleep(0.001)
"""


def test_a_writer_that_is_killed_leaves_all_but_its_last_moments(tmp_path):
    path = tmp_path / "record.jsonl"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], env=ENVIRONMENT)
    try:
        wait_until(lambda: path.exists() and path.stat().st_size > 200_000, 60)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    record = read_record(path)
    assert [r.id for r in record.requests] == list(range(1, len(record.requests) + 1))
    assert len(record.requests) > 50


def test_a_quiet_writer_has_told_all_after_a_second(tmp_path):
    path = tmp_path / "record.jsonl"
    writer = RecordWriter(path, HEADER, max_bytes=2**20, keep=0)
    writer.put(lambda: line(1))
    wait_until(lambda: len(read_record(path).requests) == 1)
    writer.close()


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(RecordError, match="there is no folder"):
        check_place(tmp_path / "none" / "r")
    with pytest.raises(RecordError, match="is no plain file"):
        check_place(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="is no plain file"):
        check_place(link)
    check_place(tmp_path / "new")


def test_block_hashes_tell_equal_beginnings_and_nothing_else():
    salt = Salt(b"k" * 32)
    prompt = list(range(3 * BLOCK + 5))
    other = [*prompt[: 2 * BLOCK], 9, *prompt[2 * BLOCK + 1 :]]
    one, two = salt.blocks(prompt), salt.blocks(other)
    assert len(one) == 4 and one[:2] == two[:2]
    assert not set(one[2:]) & set(two[2:])
    assert salt.blocks(prompt, "tenant")[0] != one[0]
    assert Salt(b"l" * 32).blocks(prompt)[0] != one[0]
    assert salt.of("") == "" and salt.of("a") != salt.of("b")


def test_two_writers_do_not_share_a_file(tmp_path):
    path = tmp_path / "record"
    first = RecordWriter(path, HEADER, max_bytes=4096, keep=2)
    try:
        with pytest.raises(RecordError, match="is being written by another server; name another"):
            check_place(path)
        with pytest.raises(RecordError, match="is being written by another server"):
            RecordWriter(path, HEADER, max_bytes=4096, keep=2)
        for number in range(300):  # its own parts are no other's
            first.put(lambda number=number: line(number))
    finally:
        first.close()
    assert first.counts.lost == 0 and [p.name for p in tmp_path.glob("record.*")]
    check_place(path)


def test_a_folder_without_locks_is_told(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("anychip.record.writer.fcntl.flock", no_locks)
    writer = RecordWriter(tmp_path / "r.jsonl", HEADER, max_bytes=1 << 20, keep=1)
    writer.close()
    assert "cannot be locked (No locks available)" in caplog.text
