"""The device's one queue: what was launched, late errors, and waits that end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.contract.execution import LaunchLog, Queue
from anychip.sdkbase.driver import Driver

LOG = logging.getLogger("anychip.chip")


class Stream:
    """What copies and operators are put on. late: the error that ended it, told by every wait.

    The current device belongs to the thread, which may drive several: `use` sets it.
    """

    def __init__(self, chip: str, driver: Driver) -> None:
        self.chip, self.driver = chip, driver
        self.late: ChipError | None = None
        self._log, self._idle = LaunchLog(), True

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

        timeout: seconds; then a thread waits, since a vendor's wait has no bound. Where the time
        passes it stays in the vendor's call until the process ends, which this fatal error asks
        for.
        """
        if self.late is not None:
            raise self.late
        try:
            if timeout is None:
                self.driver.wait()
            else:
                self._wait_bounded(timeout)
        except ChipError as error:
            queued = self._log.unconfirmed
            self.late = ChipError(error.fact, chip=self.chip, code=error.code, operators=queued)
            raise self.late from error
        self._idle = True
        self._log.confirm()

    def _wait_bounded(self, timeout: float) -> None:
        done: Future[None] = Future()
        threading.Thread(target=self._wait_into, args=(done,), daemon=True).start()
        try:
            done.result(timeout)
        except NotYet:
            text = f"the wait for the queue did not return within {timeout} s"
            fact = ErrorFact(ChipLayer.EXECUTION, ErrorKind.TIMEOUT, True, text)
            raise ChipError(fact, chip=self.chip) from None

    def _wait_into(self, done: Future[None]) -> None:
        try:
            self.driver.wait()
        except BaseException as error:  # noqa: BLE001 - told by the thread that asked
            done.set_exception(error)
        else:
            done.set_result(None)

    def sound(self) -> bool:
        """Wait; False after an error: what is held then goes back at the end of the process."""
        try:
            self.settle()
        except ChipError as error:
            LOG.warning("device %d is closed after an error: %s", self.driver.number, error)
            return False
        return True

    def close(self) -> None:
        """End the queue, where it is sound."""
        if self.sound():
            self.driver.close()


class StreamQueue(Queue):
    """The contract's queue: the device's only one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def synchronize(self, timeout: float | None) -> None:
        """See `Stream.wait` for what a timeout costs."""
        self._stream.wait(timeout)
