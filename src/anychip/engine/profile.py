"""One profile of the engine: a Chrome trace of steps, operators, copies and Python stacks.

Whatever goes wrong in here ends the profile, never the engine.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from anychip.engine.messages import ProfileEnded, ProfileWish
from anychip.engine.profile_stacks import OpenSlice, Stacks
from anychip.plan import StepPlan
from anychip.run.programs import KeptCall

log = logging.getLogger("anychip.engine")

LOOK_EVERY_S = 1 / 200
"""Time between two looks at the stacks."""
MOST_BYTES = 64 * 2**20
"""Of one trace: viewers in a browser take no more."""

LANES = {
    1: "scheduler: plan, wait, commit",
    2: "steps",
    3: "operators, each waited for",
    4: "copies between host and device",
}
_LOOP, _STEPS, _OPERATORS, _COPIES = LANES
_ENGINE = 1
"""The one process of the trace."""


class Profile:
    """A profile from its start to its file. It is a `run.watched.StepWatch`.

    on_end: told from a thread of the profile's own, once the file is written or could not be.
    """

    def __init__(self, wish: ProfileWish, on_end: Callable[[ProfileEnded], None]) -> None:
        self.wish = wish
        self._on_end = on_end
        self._begun = time.monotonic()
        self._events: list[bytes] = []
        self._nbytes = self._steps = 0
        self._reason = ""
        self._over = threading.Event()
        self._stacks = Stacks(self._stack_slice)
        self._encoder = msgspec.json.Encoder()
        self._thread = threading.Thread(target=self._work, name="anychip-profile", daemon=True)

    def start(self) -> None:
        """Begin to look at stacks and at the clock."""
        self._thread.start()

    @property
    def operators(self) -> bool:
        """See StepWatch."""
        return "OPERATORS" in self.wish.activities and not self.over

    @property
    def over(self) -> bool:
        """Whether nothing is taken any more."""
        return self._over.is_set()

    def end(self, reason: str) -> None:
        """Take nothing more; the file is written in the background. The first reason counts."""
        if not self._over.is_set():
            self._reason = reason
            self._over.set()

    def join(self) -> None:
        """Wait until the file is written."""
        self._thread.join()

    def doing(self, name: str, begin: float, plan: StepPlan | None) -> None:
        """The engine's loop did something until now. plan: of the step that it was for."""
        args = {"step": plan.step} if plan is not None else {}
        self._add(_LOOP, name, begin, time.monotonic(), args)

    def step(self, plan: StepPlan, begin: float, end: float) -> None:
        """See StepWatch."""
        if self.over:
            return
        prefill = [row for row in plan.rows if len(row.tokens) > 1 or row.start == 0]
        self._add(
            _STEPS,
            f"step {plan.step}",
            begin,
            end,
            {
                "step": plan.step,
                "rows": len(plan.rows),
                "tokens": plan.token_count,
                "decoding_rows": len(plan.rows) - len(prefill),
                "prefill_rows": len(prefill),
                "prefill_tokens": sum(len(row.tokens) for row in prefill),
                "pages_moved": len(plan.moves),
            },
        )
        self._steps += 1
        if self.wish.steps is not None and self._steps >= self.wish.steps:
            self.end("steps")

    def operator(self, call: KeptCall, begin: float, end: float) -> None:
        """See StepWatch."""
        spec = call.spec
        shapes = {name: list(tensor.shape) for name, tensor in spec.outputs.items()}
        args = {"implementation": call.implementation.id, "shapes": shapes, "timing": "waited for"}
        self._add(_OPERATORS, spec.op, begin, end, args)

    def copy(self, nbytes: int, begin: float, end: float, *, into: bool) -> None:
        """See StepWatch."""
        if "COPIES" in self.wish.activities:
            name = "to the device" if into else "to the host"
            self._add(_COPIES, name, begin, end, {"bytes": nbytes})

    def _stack_slice(self, thread: int, ended: OpenSlice, end: float) -> None:
        code = ended.code
        name = getattr(code, "co_qualname", code.co_name)
        args = {"file": code.co_filename, "line": code.co_firstlineno}
        self._add(thread, name, ended.begin, end, args)

    def _add(self, lane: int, name: str, begin: float, end: float, args: dict[str, Any]) -> None:
        """One slice. Called from several threads: appending to a list is one act."""
        if begin < self._begun or (self.over and lane in LANES):
            return
        try:
            event = {"ph": "X", "name": name, "pid": _ENGINE, "tid": lane, "args": args}
            event |= {"ts": self._micros(begin), "dur": self._micros(end) - self._micros(begin)}
            encoded = self._encoder.encode(event)
            self._events.append(encoded)
            self._nbytes += len(encoded) + 2
            if self._nbytes > MOST_BYTES:
                self.end("bytes")
        except Exception as error:  # noqa: BLE001 (told with the profile's end)
            self.end(f"{type(error).__name__}: {error}")

    def _micros(self, moment: float) -> int:
        return int((moment - self._begun) * 1e6)

    def _work(self) -> None:
        """The profile's own thread: look until it is over, then write."""
        told = ProfileEnded(path=self.wish.path)
        try:
            self._look_until_over()
            nbytes = self._write(Path(self.wish.path))
            told = ProfileEnded(
                path=self.wish.path, steps=self._steps, nbytes=nbytes, reason=self._reason
            )
            log.info("profile of %d steps written to %s (%s)", self._steps, told.path, self._reason)
        except Exception as error:
            self.end("error")
            log.error("the profile failed: %s", error, exc_info=error)
            told = ProfileEnded(path=self.wish.path, error=f"{type(error).__name__}: {error}")
        finally:
            self._events.clear()
            self._on_end(told)

    def _look_until_over(self) -> None:
        python = "PYTHON" in self.wish.activities
        while not self.over:
            now = time.monotonic()
            if python:
                self._stacks.look(now)
            if now - self._begun > self.wish.seconds:
                self.end("time")
            self._over.wait(LOOK_EVERY_S)
        self._stacks.end(time.monotonic())

    def _write(self, path: Path) -> int:
        """The file, whole or not at all; its bytes. Raises OSError."""
        names = {**LANES, **{t: f"Python: {n}" for t, n in self._stacks.names.items()}}
        heads = [_named("process_name", 0, "AnyChip engine")]
        heads += [_named("thread_name", lane, name) for lane, name in names.items()]
        heads += [_sorted(lane) for lane in LANES]
        parts = [*map(self._encoder.encode, heads), *self._events]
        facts = self._encoder.encode({"ended_by": self._reason, "steps": self._steps})
        half = path.with_name(path.name + ".part")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with os.fdopen(
                os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(b'{"displayTimeUnit":"ms","otherData":' + facts + b',"traceEvents":[\n')
                file.write(b",\n".join(parts))
                file.write(b"\n]}\n")
                nbytes = file.tell()
            half.rename(path)
        except OSError:
            with suppress(OSError):
                half.unlink()  # a full disk has no use for half a profile
            raise
        return nbytes


def _named(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _ENGINE, "tid": lane, "args": {"name": name}}


def _sorted(lane: int) -> dict[str, Any]:
    """Lanes in our order, above the threads."""
    args = {"sort_index": lane}
    return {"ph": "M", "name": "thread_sort_index", "pid": _ENGINE, "tid": lane, "args": args}
