"""The device's queue: torch keeps the order; errors are told in the contract's words."""

from __future__ import annotations

from collections.abc import Callable

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.contract.execution import LaunchLog, Queue
from anychip.torchbase.device import DeviceTimeout, TorchDevice, is_out_of_memory


class Stream:
    """Runs work on the device and remembers the names until a wait confirms them. read_back: bytes
    that operators copied to the host by themselves."""

    def __init__(self, device: TorchDevice) -> None:
        self.device = device
        self.read_back = 0
        self._log = LaunchLog()

    def reads(self, nbytes: int) -> None:
        """An operator reads so much of what the device holds by itself; nothing crosses where the
        device is the host."""
        self.read_back += 0 if self.device.is_host else nbytes

    def launch(self, name: str, work: Callable[[], None]) -> None:
        """Put one operator on the queue. Raises ChipError for what torch notices at once."""
        self._log.record(name)
        try:
            work()
        except (RuntimeError, IndexError, ValueError) as error:
            raise self._error(f"'{name}': {_first_line(error)}", error) from error

    def wait(self, timeout: float | None) -> None:
        """Wait; late errors of earlier launches come out here."""
        self.waiting(lambda: self.device.synchronize(timeout))

    def waiting(self, work: Callable[[], None]) -> None:
        """Run something that waits for the queue: a wait, a copy to the host."""
        try:
            work()
        except (RuntimeError, DeviceTimeout) as error:
            raise self._error(_first_line(error), error) from error
        self._log.confirm()

    def _error(self, text: str, error: Exception) -> ChipError:
        fact = ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, text)
        if isinstance(error, DeviceTimeout):
            fact = ErrorFact(ChipLayer.EXECUTION, ErrorKind.TIMEOUT, True, text)
        elif isinstance(error, (IndexError, ValueError)):
            fact = ErrorFact(ChipLayer.OPERATORS, ErrorKind.INVALID, False, text)
        elif is_out_of_memory(error):
            fact = ErrorFact(ChipLayer.OPERATORS, ErrorKind.OUT_OF_MEMORY, False, text)
        return ChipError(fact, chip=self.device.chip, operators=self._log.unconfirmed)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class TorchQueue(Queue):
    """The current stream of the device."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def synchronize(self, timeout: float | None) -> None:
        """Bounded where the device has events; without them a timeout cannot be kept."""
        self._stream.wait(timeout)
