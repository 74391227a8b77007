"""Late errors and waits with a bound."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from small_device import Parts

from anychip.contract.errors import ChipError, ErrorKind


@pytest.fixture
def parts():
    opened = Parts()
    yield opened
    opened.library.call("dev_late", 0)
    opened.library.call("dev_hang", 0)


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_a_late_error_names_what_was_launched_since_the_last_wait(parts, timeout):
    parts.stream.put("before", lambda: None)
    parts.queue.synchronize(timeout)
    parts.stream.put("first", lambda: None)
    parts.stream.launched("second")
    parts.library.call("dev_late", -9)
    told = []
    for act in (
        lambda: parts.queue.synchronize(timeout),
        lambda: parts.queue.synchronize(None),
        lambda: parts.memory.free(parts.memory.allocate(2 << 20)),
    ):
        with pytest.raises(ChipError) as caught:
            act()
        told.append(caught.value)
    assert all(error.fatal and error.code == 9 for error in told)
    assert told[0].operators == told[1].operators == ("first", "second")
    assert "operators: kernel failure: dev_wait: DEV 9 (LATE)" in str(told[2])


def test_a_launch_that_fails_at_once_is_not_among_those_in_doubt(parts):
    def refuse():
        raise parts.library.errors.error("DEV", 3, "dev_x")

    with pytest.raises(ChipError, match="dev_x: DEV 3"):
        parts.stream.put("refused", refuse)
    parts.stream.launched("went")
    parts.library.call("dev_late", 9)
    with pytest.raises(ChipError, match=r"since the last wait: went$"):
        parts.queue.synchronize(None)


def test_a_hang_is_bounded_and_close_does_not_wait_for_it(parts):
    parts.stream.launched("stuck")
    parts.library.call("dev_hang", 1)
    with pytest.raises(
        ChipError, match=r"did not return within 0.05 s.*last wait: stuck"
    ) as caught:
        parts.queue.synchronize(0.05)
    assert caught.value.fact.kind is ErrorKind.TIMEOUT and caught.value.fatal
    with pytest.raises(ChipError, match=r"did not return within 0.05 s"):
        parts.queue.synchronize(None)
    parts.close()


def test_what_else_goes_wrong_in_the_waiting_thread_is_raised_here(parts, monkeypatch):
    def broken():
        raise ZeroDivisionError("not the device's")

    monkeypatch.setattr(parts.stream.driver, "wait", broken)
    with pytest.raises(ZeroDivisionError):
        parts.queue.synchronize(None)
    with pytest.raises(ChipError, match="was broken off"):
        parts.queue.synchronize(5.0)


@pytest.fixture
def ctrl_c():
    """SIGINT as a program of its own has it: processes that a test runner starts ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_wait_that_never_ends_hears_ctrl_c_and_close_does_not_wait_again(parts, ctrl_c):
    parts.stream.launched("stuck")
    parts.library.call("dev_hang", 1)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        parts.queue.synchronize(None)
    with pytest.raises(ChipError, match=r"was broken off.*last wait: stuck"):
        parts.queue.synchronize(None)
    parts.close()


def test_the_thread_that_waits_ends_with_the_stream():
    before = threading.active_count()
    for _ in range(3):
        opened = Parts()
        opened.queue.synchronize(None)
        opened.close()
    patience = threading.Event()
    while threading.active_count() > before and not patience.wait(0.01):
        pass


def test_after_close_a_wait_is_refused_and_a_late_error_stays_what_it_was(parts):
    closed = Parts()
    closed.close()
    with pytest.raises(ChipError, match="the chip is closed"):
        closed.queue.synchronize(5.0)
    parts.stream.launched("bad")
    parts.library.call("dev_late", 9)
    parts.close()
    with pytest.raises(ChipError, match="DEV 9"):
        parts.queue.synchronize(5.0)


def test_the_waiting_thread_ends_also_where_the_queue_does_not(monkeypatch):
    opened, before = Parts(), threading.active_count()
    opened.queue.synchronize(None)

    def failing():
        raise opened.library.errors.error("DEV", 3, "dev_close")

    monkeypatch.setattr(opened.stream.driver, "close", failing)
    with pytest.raises(ChipError, match="dev_close"):
        opened.close()
    patience = threading.Event()
    while threading.active_count() > before and not patience.wait(0.01):
        pass


def test_a_device_that_failed_keeps_what_it_holds(parts, caplog):
    buffer, before = parts.memory.allocate(100), parts.measure().free
    parts.stream.launched("bad")
    parts.library.call("dev_late", 9)
    parts.close()
    assert buffer.freed and parts.measure().free == before
    assert "device 0 is closed after an error" in caplog.text
    parts.library.call("dev_free", buffer.handle.address)
