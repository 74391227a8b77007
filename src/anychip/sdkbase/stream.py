"""The device's one queue: what was launched, late errors, and waits that end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from queue import SimpleQueue

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind, invalid
from anychip.contract.execution import LaunchLog, Queue
from anychip.sdkbase.driver import Driver

LOG = logging.getLogger("anychip.chip")
ASK_SECONDS = 20.0
"""For a wait that only asks how the runtime is, where another library failed for good."""


class Stream:
    """What copies and operators are put on. late: the error that ended it, told by every wait.

    The current device belongs to the thread, which may drive several: `use` sets it.
    """

    def __init__(self, chip: str, driver: Driver) -> None:
        self.chip, self.driver = chip, driver
        self.late: ChipError | None = None
        self._log, self._idle = LaunchLog(), True
        self._waiter = _Waiter(chip, lambda: driver.wait())

    @property
    def handle(self) -> int:
        """The vendor's queue."""
        return self.driver.handle

    def use(self) -> None:
        """Make the device the current one of this thread."""
        self.driver.use()

    def put(self, name: str, launch: Callable[[], None]) -> None:
        """Make a call that queues work: an operator, a collective, a copy inside the device."""
        self.use()
        launch()
        self.launched(name)

    def launched(self, name: str) -> None:
        """Something was put on the queue, whose late error would name it."""
        self._idle = False
        self._log.record(name)

    def settle(self) -> None:
        """Make the device current, and wait unless nothing was launched since the last wait."""
        self.use()
        if not self._idle or self.late:
            self.wait(None)

    def wait(self, timeout: float | None) -> None:
        """Wait for all that was launched. Raises ChipError: late errors, TIMEOUT.

        timeout: seconds; where they pass, a thread stays in the vendor's call until the process
        ends, which this fatal error asks for. So it does after Ctrl-C.
        """
        if self.late is not None:
            raise self.late
        try:
            self._waiter.wait(timeout)
        except ChipError as error:
            raise self._ended(error) from error
        except BaseException as error:  # Ctrl-C, most likely because the wait does not end
            self._ended(_timeout(self.chip, "the wait for the queue was broken off"))
            raise error
        self._idle = True
        self._log.confirm()

    def _ended(self, error: ChipError) -> ChipError:
        queued = self._log.unconfirmed
        self.late = ChipError(error.fact, chip=self.chip, code=error.code, operators=queued)
        return self.late

    def sound(self) -> bool:
        """Wait; False after an error: what is held then goes back at the end of the process."""
        try:
            self.settle()
        except ChipError as error:
            LOG.warning("device %d is closed after an error: %s", self.driver.number, error)
            return False
        return True

    def close(self) -> None:
        """End the queue, where it is sound; a wait is refused from then on."""
        try:
            if self.sound():
                self.driver.close()
        finally:
            closed = invalid(self.chip, ChipLayer.EXECUTION, "the chip is closed")
            self.late = self.late or closed
            self._waiter.close()


def _timeout(chip: str, text: str) -> ChipError:
    return ChipError(ErrorFact(ChipLayer.EXECUTION, ErrorKind.TIMEOUT, True, text), chip=chip)


class _Waiter:
    """Waits in a thread of its own: a vendor's wait has no bound and hears no signal, a wait for
    a thread has both. The thread starts with the first wait."""

    def __init__(self, chip: str, wait: Callable[[], None]) -> None:
        self._chip, self._wait = chip, wait
        self._asked: SimpleQueue[Future[None] | None] = SimpleQueue()
        self._started = False

    def wait(self, timeout: float | None) -> None:
        """Raises what the vendor's wait raises, and TIMEOUT; the thread then stays where it is."""
        if not self._started:
            threading.Thread(target=self._serve, daemon=True).start()
            self._started = True
        done: Future[None] = Future()
        self._asked.put(done)
        try:
            done.result(timeout)
        except NotYet:
            text = f"the wait for the queue did not return within {timeout} s"
            raise _timeout(self._chip, text) from None

    def close(self) -> None:
        """End the thread, unless it is in a wait that does not return."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (done := self._asked.get()) is not None:
            try:
                self._wait()
            except BaseException as error:  # noqa: BLE001 - told by the thread that asked
                done.set_exception(error)
            else:
                done.set_result(None)


class StreamQueue(Queue):
    """The contract's queue: the device's only one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def synchronize(self, timeout: float | None) -> None:
        """See `Stream.wait` for what a timeout costs."""
        self._stream.wait(timeout)
