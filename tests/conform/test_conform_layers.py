"""Registration, build, memory and execution: sound chips pass, one wrong thing is found."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from anychip.chips.cpu.registration import CpuChip
from anychip.chips.fake.memory import FakeMemory
from anychip.chips.fake.registration import FakeChip
from anychip.conform import build, execution, execution_errors, memory, memory_lifetime
from anychip.conform import registration as registration_level
from anychip.conform.expect import Broken, refused, within
from anychip.conform.index import CHECKS
from anychip.conform.proof import Level, Status, prove
from anychip.contract.build import Finding, Library, Verdict
from anychip.contract.discovery import load_chip
from anychip.contract.errors import ChipError, ErrorFact, ErrorKind, invalid
from anychip.contract.errors import ChipLayer as Layer
from conform.layer_defects import DEFECTS, NoPrimitives
from conform.layer_doubles import (
    FullBuild,
    FullChip,
    TwoDevices,
    build_with,
    full_with,
    memory_with,
    subject_of,
)

LEVELS = {
    Level.REGISTRATION: registration_level,
    Level.BUILD: build,
    Level.MEMORY: memory,
    Level.EXECUTION: execution,
}
QUEUED = {"M7 host_view": "memory.host_view is an empty slot"}
"""What a chip that queues its work cannot have."""
OPTIONAL = {
    *("M7 copy", "M7 copy_peer", "M7 allocate_pinned", "M7 statistics", "T1", "G1", "C1"),
    *QUEUED,
}


@pytest.fixture(autouse=True)
def few_opens(monkeypatch):
    """60 times open and close instead of 1,000."""
    monkeypatch.setattr(memory_lifetime, "OPENS", 60)


def checks_of(subject):
    return [check for module in LEVELS.values() for check in module.checks(subject)]


def proofs(cls, *keys, **options):
    """The proofs of some checks, of all where none is named."""
    subject = subject_of(cls, **options)
    wanted = [c for c in checks_of(subject) if not keys or c.key in keys]
    try:
        return {check.key: prove(check, subject) for check in wanted}
    finally:
        subject.close()


def proof(cls, key, **options):
    return proofs(cls, key, **options)[key]


def of_status(found, status):
    return {key: p.text for key, p in found.items() if p.status is status}


def test_each_level_has_every_check_of_the_index_and_no_other():
    for level, module in LEVELS.items():
        found = module.checks(subject_of(FakeChip))
        assert {c.id for c in found} == {i for i, (where, _) in CHECKS.items() if where is level}
        assert all(c.level is level for c in found)
        assert len({c.key for c in found}) == len(found)


def test_gates_are_those_that_nothing_works_without():
    gates = {c.id for c in checks_of(subject_of(FakeChip)) if c.gate}
    assert gates == {"P1", "D1", "M2", "X1"}


def test_a_strict_chip_passes():
    found = proofs(FakeChip, memory="32M")
    left = {"B3", *OPTIONAL} - {"T1"}
    assert set(of_status(found, Status.UNSUPPORTED)) == left
    assert {p.status for k, p in found.items() if k not in left} == {Status.PASS}, found


def test_a_chip_with_every_slot_filled_passes():
    found = proofs(FullChip, memory="32M")
    left = {"M7 copy_peer": "memory.copy_peer is an empty slot", **QUEUED}
    assert of_status(found, Status.UNSUPPORTED) == left
    rest = {p.status for k, p in found.items() if k not in left}
    assert rest == {Status.PASS}, found


def test_the_processor_passes():
    found = proofs(CpuChip, memory="64M")
    assert not of_status(found, Status.FAIL)
    assert not of_status(found, Status.MISSING) and not of_status(found, Status.INCONCLUSIVE)
    assert set(of_status(found, Status.UNSUPPORTED)) == OPTIONAL - {"G1", "T1", *QUEUED}


def test_a_framework_passes():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small copies: waiting for threads would take most of the time
    try:
        found = proofs(load_chip("torch"), memory="64M")
    finally:
        torch.set_num_threads(threads)
    left = {"B3", *OPTIONAL} - {"T1"}
    assert set(of_status(found, Status.UNSUPPORTED)) == left
    rest = {k: p for k, p in found.items() if k not in left}
    assert {p.status for p in rest.values()} == {Status.PASS}, rest


@pytest.mark.parametrize("name", DEFECTS)
def test_one_wrong_thing_is_found_and_named(name):
    cls, key, text = DEFECTS[name]
    found = proof(cls, key)
    assert found.status is Status.FAIL, found
    assert text in found.text


def test_a_failed_check_leaves_a_device_that_works():
    subject = subject_of(memory_with(fill=lambda self, target, byte: None))
    checks = {c.key: c for c in memory.checks(subject)}
    assert prove(checks["M7 fill"], subject).status is Status.FAIL
    assert prove(checks["M2"], subject).status is Status.PASS
    assert subject.chip.memory.info().used == 0
    subject.close()


def test_what_is_not_there_is_missing_not_unsupported():
    found = proofs(NoPrimitives, "X1", "X2", "X3", "X4", "X5")
    assert {p.status for p in found.values()} == {Status.MISSING}
    assert "neg, add, copy" in found["X1"].text
    found = proofs(FakeChip, "X1", "X4", without="neg,gather_rows")
    assert found["X1"].status is Status.PASS and "add" in found["X1"].text
    assert found["X4"].status is Status.MISSING and "gather_rows" in found["X4"].text


class Peerless(FakeMemory):
    def copy_peer(self, target, source, device) -> None:
        raise AssertionError("there is no other device")


def test_one_device_proves_nothing_about_copies_to_another():
    found = proof(full_with(_memory=Peerless), "M7 copy_peer")
    assert found.status is Status.INCONCLUSIVE and "second" in found.text


@pytest.mark.parametrize(("spoil", "status"), [(0, Status.PASS), (1, Status.FAIL)])
def test_a_copy_to_another_device_arrives(spoil, status):
    opened = []

    class Peers(FakeMemory):
        def copy_peer(self, target, source, device) -> None:
            data, other = self._bytes(source, None, "copy_peer"), opened[-1].memory
            to = other._bytes(target, None, "copy_peer")
            self._put("copy_peer", lambda: np.copyto(to, data ^ spoil))

    class Pair(TwoDevices):
        _memory = Peers

        def __init__(self, values) -> None:
            super().__init__(values)
            opened.append(self)

    assert proof(Pair, "M7 copy_peer").status is status


def test_a_header_that_nothing_looks_for_is_inconclusive():
    found = proof(build_with(check=lambda self: ()), "B1")
    assert found.status is Status.INCONCLUSIVE and "full.h" in found.text


def test_findings_that_nobody_knows_are_mentioned():
    assert "unknown: card: new" in proof(FullChip, "B2").text
    assert (
        "no row of the matrix"
        in proof(build_with(versions=lambda self: {"driver": "6"}), "B2").text
    )


def test_kernels_built_every_time_are_found(tmp_path):
    count = iter(range(9))

    def compile(self) -> str:
        path = tmp_path / "kernels.so"
        path.write_bytes(b"kernels")
        stamp = next(count)
        os.utime(path, ns=(stamp, stamp))
        return str(path)

    found = proof(build_with(compile=compile), "B3")
    assert found.status is Status.FAIL and "again" in found.text


def test_a_library_loaded_from_two_files_is_found():
    old = {"/usr/lib/libc.so.6"}
    new = {*old, "/opt/a/libops.so.4.2", "/opt/b/libops.so.4.3", "/opt/libops.so.5"}
    assert build.twins(old, new) == {
        "libops.so.4": ["/opt/a/libops.so.4.2", "/opt/b/libops.so.4.3"]
    }
    assert build.twins(new, new) == {}


def test_a_library_that_ends_its_process_is_named(monkeypatch):
    monkeypatch.setattr(build, "LOAD_SECONDS", 0.001)
    kind = type("Slow", (FullBuild,), {"requires": lambda self: (Library("libc.so.6", "system"),)})
    found = proof(full_with(_build=kind), "B1")
    assert found.status is Status.FAIL and "libc.so.6" in found.text


def test_a_check_of_the_device_that_hangs_is_ended(monkeypatch):
    ended = threading.Event()

    def hang(cls, device, timeout):
        ended.wait(30.0)
        return Finding("card", Verdict.GOOD, "at last")

    monkeypatch.setattr(registration_level, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(registration_level, "PATIENCE", 0.05)
    found = proof(full_with(check_device=classmethod(hang)), "D2")
    ended.set()
    assert found.status is Status.FAIL and "has not returned within 0.1 s" in found.text


def test_an_unnoticed_index_alone_is_inconclusive(monkeypatch):
    monkeypatch.setattr(execution_errors, "provoke", lambda chip: {"stage": "", "text": ""})
    monkeypatch.setattr(execution_errors, "ON_DEMAND", "no such option")
    found = proof(FullChip, "X4")
    assert found.status is Status.INCONCLUSIVE and "noticed by nothing" in found.text


def test_a_process_that_dies_of_an_index_fails_and_names_the_signal(monkeypatch):
    monkeypatch.setattr(execution_errors, "__name__", "conform.dying_child")
    found = proof(load_chip("fake"), "X4", memory="1M")
    assert found.status is Status.FAIL and "SIGSEGV" in found.text


def test_fewer_opens_where_one_is_slow_and_the_number_is_told(monkeypatch):
    monkeypatch.setattr(memory_lifetime, "OPENS", 1000)
    assert memory_lifetime.opens_for(0.001) == 1000
    assert memory_lifetime.opens_for(0.5) == 120
    assert memory_lifetime.opens_for(30.0) == 40
    monkeypatch.setattr(memory_lifetime, "SECONDS", 0.0)
    found = proof(FakeChip, "M6", memory="1M")
    assert found.status is Status.PASS and "40 times, not 1,000" in found.text


def lost() -> None:
    raise invalid("fake", Layer.MEMORY, "no")


def test_a_refusal_must_be_of_the_right_kind_and_layer():
    assert isinstance(refused(lost, "it"), ChipError)
    for call, text in ((lambda: None, "accepted"), (lambda: 1 / 0, "ZeroDivisionError")):
        with pytest.raises(Broken, match=text):
            refused(call, "it")
    with pytest.raises(Broken, match="out of memory"):
        refused(lost, "it", kind=ErrorKind.OUT_OF_MEMORY)
    with pytest.raises(Broken, match="layer build"):
        refused(lost, "it", layer=Layer.BUILD)
    fatal = ChipError(ErrorFact(Layer.MEMORY, ErrorKind.INVALID, True, "x"), chip="fake")

    def raise_fatal() -> None:
        raise fatal

    with pytest.raises(Broken, match="must go on"):
        refused(raise_fatal, "it")


def test_a_bounded_call_gives_its_result_or_its_error():
    assert within(5.0, "it", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5.0, "it", lambda: 1 / 0)
