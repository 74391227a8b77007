"""What `/debug/stacks` tells of the two processes: where their threads were, and what they used.

Plain data, which the server makes and `anychip scan` and `anychip diagnose` read again.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

PYTHON = "python"
"""Runs Python, or waits for the interpreter's lock: what holds that lock is not told apart."""
NATIVE = "native"
"""Runs native code that has let the interpreter go."""
LOCK = "lock"
"""Waits for a lock that another thread holds."""
HANDOVER = "handover"
"""Waits for another thread's result or order: idle."""
NATIVE_WAIT = "native wait"
"""Waits inside a native call, which may be for a lock or a device of its own."""
IO = "io"
"""Waits in the kernel: a socket, a file, a timer."""
FAULT = "page fault"
"""Waits for a page of memory to be brought in."""
STATES = (PYTHON, NATIVE, LOCK, HANDOVER, NATIVE_WAIT, IO, FAULT)

LAYERS = ("chip", "runner", "engine", "schedule", "grammar", "text", "server", "other")
"""Parts of the program that a line of Python belongs to, by its module."""


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """A line of Python and what a thread did there. share: of the thread's samples, 0 to 1.

    text: the line of source, where it can be read.
    """

    state: str
    layer: str
    file: str
    line: int
    function: str
    text: str
    share: float

    @property
    def place(self) -> str:
        """file:line (function)."""
        return f"{self.file}:{self.line} ({self.function})"


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """Share of a thread's samples in a state and a layer."""

    state: str
    layer: str
    share: float


class ThreadSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One Python thread. ran, queued: share of the time on a core, and waiting for a free one.

    interpreter_wait: estimated share of the time in which it waited for the interpreter's lock:
    what the samples call Python, less what it computed and less its waits for a core.
    totals: all samples by state and layer. spots: the lines with the largest shares.
    """

    tid: int
    name: str
    purpose: str
    samples: int
    ran: float
    queued: float
    interpreter_wait: float
    totals: tuple[Total, ...]
    spots: tuple[Spot, ...]

    def share(self, states: Collection[str], layers: Collection[str] = LAYERS) -> float:
        """The share of its samples in some states and layers."""
        found = (t.share for t in self.totals if t.state in states and t.layer in layers)
        return sum(found)


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One process over `seconds`. core_seconds: of all its threads; cores: that it may run on.

    native_threads, native_core_seconds: of threads that never ran Python, as a chip's pool of them.
    major_faults: pages that had to be read in from a disk meanwhile. swap_bytes: of its memory, on
    disk now. voluntary_switches: how often its threads gave up their core to wait.
    """

    role: str
    pid: int
    seconds: float
    samples: int
    core_seconds: float
    cores: int
    threads: tuple[ThreadSeen, ...]
    native_threads: int = 0
    native_core_seconds: float = 0.0
    major_faults: int = 0
    minor_faults: int = 0
    voluntary_switches: int = 0
    swap_bytes: int = 0
    resident_bytes: int = 0
    kernel_states: bool = True
    """Whether the kernel told what threads wait for; without, a wait is read off its line."""

    def thread(self, purpose: str) -> ThreadSeen | None:
        """The thread of a purpose; None where there is none."""
        return next((thread for thread in self.threads if thread.purpose == purpose), None)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The whole machine meanwhile. core_busy: share of the time by core, every program counted.

    pages_migrated: pages that the kernel moved between memories; None where it does not tell.
    """

    core_busy: tuple[float, ...] = ()
    pages_migrated: int | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a running server."""

    seconds: float
    hertz: float
    processes: tuple[ProcessSeen, ...]
    machine: Machine = Machine()

    def process(self, role: str) -> ProcessSeen | None:
        """The process of a role, "server" or "engine"."""
        return next((one for one in self.processes if one.role == role), None)


LONGEST_S, SHORTEST_S = 30.0, 0.05
MOST_HERTZ, LEAST_HERTZ = 200.0, 1.0
"""Bounds of one look."""
