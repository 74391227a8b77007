"""Stacks of threads that a library started behind Python's back."""

from __future__ import annotations

import _thread

from anychip.engine.profile_stacks import Stacks


def test_a_thread_that_threading_did_not_make_has_a_name():
    begun, end = _thread.allocate_lock(), _thread.allocate_lock()
    begun.acquire()
    end.acquire()

    def waits() -> None:
        begun.release()
        end.acquire()

    ident = _thread.start_new_thread(waits, ())
    begun.acquire()
    closed: list[int] = []
    stacks = Stacks(lambda thread, *_: closed.append(thread))
    stacks.look(1.0)
    end.release()
    stacks.end(2.0)
    assert ident in closed and stacks.names[ident] == f"thread {ident}"
