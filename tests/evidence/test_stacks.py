"""What threads are said to do, against threads that do just that."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from anychip.engine import evidence as told
from anychip.engine.stacks import sample_process
from anychip.engine.thread_states import ThreadStates

HELD = threading.Lock()


def take_a_lock(over):
    with HELD:
        over.wait()


def take_an_order(over, orders):
    while orders.get() is not None:
        over.wait()


def sleep_on(over):
    while not over.is_set():
        time.sleep(0.2)


def count(over):
    number = 0
    while not over.is_set():
        number += 1


def digest(over):
    while not over.is_set():
        hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 400_000)


@contextmanager
def working(*works):
    """Threads named after their functions; ends them."""
    over, orders = threading.Event(), queue.SimpleQueue()
    threads = []
    with HELD:
        for work in works:
            given = (over, orders) if work is take_an_order else (over,)
            threads.append(threading.Thread(target=work, args=given, name=work.__name__))
            threads[-1].start()
        try:
            yield
        finally:
            over.set()
            orders.put(None)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def seen(*works, seconds=0.6):
    with working(*works):
        process = sample_process("test", seconds, 100, {threading.get_native_id(): "asks"})
    assert process.samples > 3 and process.kernel_states
    return process, {thread.name: thread for thread in process.threads}


def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


def top(thread):
    return thread.spots[0]


def test_waits_are_told_apart():
    process, threads = seen(take_a_lock, take_an_order, sleep_on)
    lock, order, asleep = (top(threads[w.__name__]) for w in (take_a_lock, take_an_order, sleep_on))
    assert (lock.state, lock.text) == (told.LOCK, "with HELD:") and lock.share > 0.9
    assert lock.place.endswith(f"test_stacks.py:{line_of('with HELD:')} (take_a_lock)")
    assert (order.state, order.text) == (told.HANDOVER, "while orders.get() is not None:")
    assert asleep.state == told.IO
    assert threads["take_a_lock"].ran < 0.2
    assert "asks" not in {thread.purpose for thread in process.threads}


def test_native_code_is_told_from_python():
    _, threads = seen(count, digest)
    assert threads["count"].share([told.PYTHON]) > 0.8
    assert threads["digest"].share([told.NATIVE]) > 0.5
    assert "pbkdf2_hmac" in top(threads["digest"]).text


def test_who_waits_for_the_interpreter_uses_no_core():
    """Two that count take turns; on a busy machine they wait for a core as well."""
    with working(count, count):
        process = sample_process("test", 1.0, 50, {})
    counters = [thread for thread in process.threads if thread.name == "count"]
    lost = sum(thread.interpreter_wait + thread.queued for thread in counters)
    assert lost > 0.5 and sum(thread.ran for thread in counters) < 1.5


def test_without_word_of_the_kernel_the_line_tells(monkeypatch):
    monkeypatch.setattr(ThreadStates, "_can_tell", lambda self: False)
    with working(take_a_lock, take_an_order, sleep_on):
        process = sample_process("test", 0.2, 50, {})
    assert not process.kernel_states
    states = {thread.name: top(thread).state for thread in process.threads}
    assert states["take_a_lock"] == told.LOCK and states["take_an_order"] == told.HANDOVER
    assert states["sleep_on"] == told.IO


@pytest.mark.parametrize(
    ("module", "layer"),
    [
        ("anychip.chips.fake.operators", "chip"),
        ("anychip.run.batch", "runner"),
        ("anychip.schedule.radix", "schedule"),
        ("anychip.text.tokenizer", "text"),
        ("anychip.plan", "other"),
        ("elsewhere", "other"),
    ],
)
def test_a_layer_is_read_off_the_module(module, layer):
    """The function is compiled in a module of that name; it waits for an event."""
    space = {"__name__": module}
    exec(compile("def wait_there(over):\n    over.wait()\n", "there.py", "exec"), space)
    with working(space["wait_there"]):
        process = sample_process("test", 0.1, 50, {})
    (thread,) = (one for one in process.threads if one.name == "wait_there")
    assert (top(thread).layer, top(thread).state) == (layer, told.HANDOVER)
