"""How a check says what must hold: the first thing that does not ends the check with its text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import wraps
from typing import TypeVar

from anychip.conform.proof import Proof, failed, missing
from anychip.conform.subject import Subject
from anychip.contract.errors import ChipError, ChipLayer, ErrorKind

T = TypeVar("T")
Run = Callable[[Subject], Proof]


class Broken(Exception):
    """Something that must hold does not; the text names the value and the limit."""


class Lacking(Exception):
    """The chip does not bring what a check needs and every chip must bring; the text says what."""


def expect(holds: bool, text: str) -> None:
    """Go on where it holds. Raises Broken."""
    if not holds:
        raise Broken(text)


def judged(run: Run) -> Run:
    """The same check, with Broken told as FAIL and Lacking as MISSING.

    What a check allocated before it broke goes when the device is closed: it is opened anew.
    """

    @wraps(run)
    def judge(subject: Subject) -> Proof:
        try:
            return run(subject)
        except Broken as broken:
            subject.reopen()
            return failed(str(broken))
        except Lacking as lacking:
            subject.reopen()
            return missing(str(lacking))

    return judge


def refused(
    call: Callable[[], object],
    what: str,
    *,
    kind: ErrorKind = ErrorKind.INVALID,
    layer: ChipLayer = ChipLayer.MEMORY,
) -> ChipError:
    """The error with which a call is refused: of this kind and layer, not fatal. Raises Broken."""
    try:
        call()
    except ChipError as error:
        fact = error.fact
        text = f"{what} is refused as '{fact.kind.value}' of layer {fact.layer.value}"
        right = fact.kind is kind and fact.layer is layer
        expect(right, f"{text}, it must be '{kind.value}' of layer {layer.value}: {error}")
        expect(
            not fact.fatal, f"{what} is refused with a fatal error, the chip must go on: {error}"
        )
        return error
    except Exception as error:
        text = f"{what} raises {type(error).__name__} ({error}), it must be a ChipError"
        raise Broken(f"{text} of kind '{kind.value}'") from error
    raise Broken(f"{what} is accepted, it must be refused as '{kind.value}'")


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """The result of a call that must end in time; a thread waits on for one that hangs.

    Not for calls to an opened chip: those belong to the thread that opened it. Raises Broken.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - handed to the caller, who sees it raised
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    wait([future], seconds)
    expect(future.done(), f"{what} has not returned within {seconds:g} s")
    return future.result()
