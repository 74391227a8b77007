"""One ordered queue a device: operators and copies run in call order; only waits wait."""

from __future__ import annotations

from anychip.contract.layer import Layer, optional, required


class Queue(Layer, contract=True):
    """The device's default queue. Calling a launch puts it here; see `operators.Launch`."""

    @required
    def synchronize(self, timeout: float | None) -> None:
        """Wait until everything queued has run.

        timeout: seconds, None waits for ever. Raises ChipError: TIMEOUT when it passes, or the
        late error of an earlier launch, naming the operators queued since the last wait.
        """
        raise NotImplementedError

    @optional
    def create(self) -> Queue:
        """A further queue of the same device; work of different queues has no order."""
        raise NotImplementedError

    @optional
    def record(self) -> object:
        """An event behind the work queued so far (for chips with more than one queue)."""
        raise NotImplementedError

    @optional
    def wait(self, event: object) -> None:
        """Let later work of this queue follow an event of another one."""
        raise NotImplementedError


class LaunchLog:
    """Names queued since the last confirmed wait, so that a late error can name them."""

    def __init__(self, keep: int = 256) -> None:
        self._keep = keep
        self._names: list[str] = []

    def record(self, name: str) -> None:
        """Remember one launch; the oldest are forgotten beyond `keep`."""
        self._names.append(name)
        if len(self._names) > self._keep:
            del self._names[: -self._keep]

    def confirm(self) -> None:
        """A wait succeeded: nothing is in doubt any more."""
        self._names.clear()

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Names in launch order."""
        return tuple(self._names)
