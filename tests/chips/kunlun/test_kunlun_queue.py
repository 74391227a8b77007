"""Order and late errors: the runtime waits for nothing by itself, and is as slow as it likes."""

from collections.abc import Iterator
from pathlib import Path

import kunlun_sim
import numpy as np
import pytest
from kunlun_sim import MIB, Parts

SLOW = 30
"""Milliseconds that a kernel lags behind in these tests."""


@pytest.fixture
def parts(sdk, kernels) -> Iterator[Parts]:
    opened = Parts(sdk, kernels)
    yield opened
    opened.close()


def test_a_copy_that_waits_for_nothing_would_be_wrong(parts):
    """The danger is real here: the runtime's own copy reads what was there before the kernel."""
    tensor, host = parts.upload(np.zeros(64, np.uint8)), np.zeros(64, np.uint8)
    parts.set_bytes(tensor, 7, SLOW)
    parts.xre.call("xpu_memcpy", host.ctypes.data, parts.blocks.address(tensor), 64, 0)
    assert (host == 0).all()
    assert (parts.download(tensor) == 7).all()


def test_copy_in_stays_behind_the_launch_before_it(parts):
    tensor = parts.upload(np.zeros(64, np.uint8))
    parts.set_bytes(tensor, 7, SLOW)
    parts.memory.copy_in(tensor.view((8,)), np.full(8, 1, np.uint8).data)
    assert parts.download(tensor).tolist() == [1] * 8 + [7] * 56


def test_copy_in_waits_for_nothing_where_nothing_was_launched(parts):
    waits = counted(parts, "xpu_wait")
    tensor = parts.upload(np.zeros(64, np.uint8))
    parts.upload(np.zeros(64, np.uint8))
    assert waits == []
    parts.set_bytes(tensor, 7)
    parts.memory.copy_in(tensor, np.zeros(64, np.uint8).data)
    parts.memory.copy_in(tensor, np.zeros(64, np.uint8).data)
    assert len(waits) == 1


def counted(parts: Parts, name: str) -> list[str]:
    """Grows with each call of a function of the runtime."""
    seen: list[str] = []
    status = parts.xre.status

    def noting(called, *arguments):
        if called == name:
            seen.append(called)
        return status(called, *arguments)

    parts.xre.status = noting
    return seen


def test_copies_inside_the_card_and_fills_keep_the_order(parts):
    source, target = parts.upload(np.zeros(100, np.uint8)), parts.bytes(100)
    parts.set_bytes(source, 3, SLOW)
    parts.memory.copy(target, source)
    parts.memory.fill(source, 9)
    assert (parts.download(target) == 3).all()
    assert (parts.download(source) == 9).all()
    parts.set_bytes(source, 4, SLOW)
    parts.memory.fill(source, 5)
    assert (parts.download(source) == 5).all()


@pytest.mark.parametrize("size", [1000, 3 * MIB])
def test_a_free_follows_the_launch_that_uses_the_buffer(parts, size):
    """A pooled block is handed out again at once, a large one not before the launch is done."""
    content = np.full(size, 5, np.uint8)
    source, target = parts.upload(content), parts.bytes(size)
    parts.sleep(SLOW)
    parts.memory.copy(target, source)
    parts.memory.free(source.buffer)
    garbage = parts.upload(np.full(size, 99, np.uint8))
    assert (parts.download(target) == 5).all()
    assert (parts.download(garbage) == 99).all()


def test_a_wait_ends_with_all_that_was_launched(parts):
    tensor, host = parts.upload(np.zeros(64, np.uint8)), np.zeros(64, np.uint8)
    for timeout in (None, 20.0):
        parts.set_bytes(tensor, 7, SLOW)
        parts.queue.synchronize(timeout)
        parts.xre.call("xpu_memcpy", host.ctypes.data, parts.blocks.address(tensor), 64, 0)
        assert (host == 7).all()
        parts.memory.fill(tensor, 0)
    parts.queue.synchronize(0.5)


LATE = """
kept = parts.bytes(64)
big = parts.bytes(3 << 20)
parts.set_bytes(kept, 1)
parts.set_bytes(kept, 2)
parts.stream.launched("third")
print(told(lambda: parts.{wait}))
print(told(lambda: parts.queue.synchronize(None)))
print(told(lambda: parts.upload(np.zeros(3, np.uint8))))
print(told(lambda: parts.memory.free(big.buffer)))
parts.blocks.close()
parts.stream.close()
print(kept.buffer.freed)
"""


@pytest.mark.parametrize(
    "wait", ["queue.synchronize(None)", "queue.synchronize(20.0)", "download(kept)"]
)
def test_a_kernel_exception_is_told_at_the_next_wait_and_at_all_later_ones(sdk, kernels, wait):
    child = kunlun_sim.start(sdk, kernels, LATE.format(wait=wait), faults="kexception@2")
    *errors, freed = kunlun_sim.ended(child).splitlines()
    assert len(errors) == 4 and freed == "True"
    for error in errors:
        assert "operators: kernel failure: xpu_wait: XRE 714 (KEXCEPTION)" in error
        assert "queued since the last wait: set_bytes, set_bytes, third" in error


def test_names_are_forgotten_once_a_wait_went_well(sdk, kernels):
    body = """
kept = parts.bytes(64)
parts.stream.launched("first")
parts.queue.synchronize(None)
parts.set_bytes(kept, 2)
print(told(lambda: parts.download(kept)))
"""
    out = kunlun_sim.ended(kunlun_sim.start(sdk, kernels, body, faults="kexception"))
    assert out.endswith("queued since the last wait: set_bytes\n")


def test_a_hang_is_bounded_and_close_does_not_wait_for_it(sdk, kernels):
    body = """
kept = parts.bytes(64)
parts.set_bytes(kept, 1)
try:
    parts.queue.synchronize(0.2)
except ChipError as error:
    print(error.fact.kind.value, error.fatal, error)
print(told(lambda: parts.queue.synchronize(5.0)))
print(told(lambda: parts.queue.synchronize(None)))
parts.blocks.close()
parts.stream.close()
"""
    out = kunlun_sim.ended(kunlun_sim.start(sdk, kernels, body, faults="hang@1"))
    first, second, third = out.splitlines()
    assert first.startswith("timeout True ") and "did not return within 0.2 s" in first
    assert first.endswith("queued since the last wait: set_bytes")
    assert second == third and second in first


def test_a_lost_card_is_fatal_and_can_be_closed(sdk, kernels):
    body = """
kept = parts.bytes(64)
parts.stream.use()
print(abs(parts.launch_fill(kept, 1)) in (0, 802))
try:
    parts.download(kept)
except ChipError as error:
    print(error.fact.kind.value, error.fatal, error)
parts.blocks.close()
parts.stream.close()
print(kept.buffer.freed)
"""
    out = kunlun_sim.ended(kunlun_sim.start(sdk, kernels, body, faults="lost@1"))
    launched, error, freed = out.splitlines()
    assert (launched, freed) == ("True", "True")
    assert error.startswith("device lost True") and "XRE 802 (HWEXCEPTION)" in error


def test_a_runtime_without_what_is_needed_is_refused(tmp_path: Path):
    from anychip.chips.kunlun.memory import Xre
    from anychip.contract.errors import ChipError

    for library in (tmp_path / "libxpurt.so", "libm.so.6"):
        with pytest.raises(ChipError, match=r"build: version mismatch.*(libxpurt\.so|xpu_get)"):
            Xre(library)
