"""Times and counts the turns of the engine's loop: a step, and what is read and told around it."""

from __future__ import annotations

import cProfile
import ctypes
import pstats
import random
import socket
import statistics
import sys
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np

from anychip.engine.connection import Connection
from anychip.engine.engine import Engine
from anychip.engine.loaded import LoadedModel, Session
from anychip.engine.process import EngineLoop
from anychip.request import Request, SamplingParams
from costs.steps import TimedCapture, Unsteady

WARM = 8
"""Turns before any that counts: the first step of a size is traced and bound."""

COUNTED = 6
"""Turns that are counted: fewer than tokens of a page, so that most of them meet no new one."""

MOST_TURNS = 1000
"""Until all prompts are computed."""

ANSWER = 1 << 20
_MESSAGE = 1 << 20


@dataclass(frozen=True)
class Turn:
    """Python's seconds of one turn, by who spends them, and native: the launches' own.

    run: from the plan to the tokens, without the launches. loop: the rest, such as the socket, the
    snapshot and the message.
    """

    plan: float
    run: float
    commit: float
    loop: float
    native: float

    @property
    def python(self) -> float:
        """All but the launches."""
        return self.plan + self.run + self.commit + self.loop


@dataclass(frozen=True)
class Counts:
    """What a turn does, as medians, the same on every machine. peak: bytes that it allocates and
    gives back. by_code: bytecodes of each function."""

    calls: int
    native_calls: int
    bytecodes: int
    peak: int
    by_code: dict[str, float]


@dataclass(frozen=True)
class Spent:
    """A function of the profile: own seconds and calls a turn."""

    name: str
    seconds: float
    calls: float


@contextmanager
def turns_of(model: LoadedModel, batch: int, context: int) -> Iterator[Turns]:
    """`batch` sequences that decode, behind prompts of `context` tokens. Raises Unsteady."""
    chip = model.opened.chip
    native = chip.capture = TimedCapture(chip)
    ours, theirs = socket.socketpair()
    with model.session() as session, ours, theirs:
        found = Turns(session, native, (ours, theirs))
        found.fill(batch, context, model.opened.plan.config.vocab_size)
        yield found


class Eviction:
    """Reads so many bytes that nothing else is left in the processor's caches: as weights are, in
    large pages where the system has them."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = np.full(nbytes, 2, np.uint8)
        self._find = ctypes.CDLL(None).memchr  # lets go of the interpreter, as launches do
        self._find.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

    def read_all(self) -> None:
        """Look for what is not there."""
        self._find(self._bytes.ctypes.data, 1, self._bytes.nbytes)


class Turns:
    """The loop of an engine whose other end only reads."""

    def __init__(
        self, session: Session, native: TimedCapture, ends: tuple[socket.socket, socket.socket]
    ) -> None:
        self._session, self._native = session, native
        self._engine, self._run = session.engine, session.runner.meter
        self._engine.meter.run = self._run.figures
        self._figures = self._engine.meter.snapshot(self._engine.scheduler, 0)
        self._reader, self._connection = ends[0], Connection(ends[1])
        self._loop = EngineLoop(self._connection, self._engine)

    def fill(self, batch: int, context: int, vocabulary: int) -> None:
        """Compute the prompts."""
        draw = random.Random(1)
        params = SamplingParams(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
        for n in range(batch):
            prompt = tuple(draw.randrange(vocabulary) for _ in range(context))
            self._engine.submit(Request(id=f"request-{n:04}", prompt=prompt, params=params))
        for _ in range(MOST_TURNS):
            before = self._decoded()
            self.turn()
            if self._decoded() - before == batch:
                break
        else:
            raise Unsteady(f"{batch} sequences of {context} tokens never decoded together")
        for _ in range(WARM):
            self.turn()

    def _decoded(self) -> int:
        figures = self._engine.meter.snapshot(self._engine.scheduler, 0)
        return figures.step_rows.get("decode", 0)

    def turn(self, look: Callable[[Callable[[], Any]], None] | None = None) -> Turn:
        """One turn. look: runs it in place of us."""
        plan, commit = self._phases()
        run, began = self._run.figures.seconds, time.perf_counter()
        if look is None:
            self._loop.turn()
        else:
            look(self._loop.turn)
        whole = time.perf_counter() - began
        self._reader.recv(_MESSAGE, socket.MSG_DONTWAIT)
        after = self._phases()
        plan, commit, run = after[0] - plan, after[1] - commit, self._run.figures.seconds - run
        native = self._native.seconds
        return Turn(plan, run - native, commit, whole - plan - commit - run, native)

    def _phases(self) -> tuple[float, float]:
        seconds = self._figures.python_seconds
        return seconds["plan"], seconds["commit"]

    def timed(self, count: int, behind: Callable[[], None] | None) -> Turn:
        """Medians of so many turns. behind: called after the launches of each, as part of them."""
        self._native.behind = behind
        found = [self.turn() for _ in range(count)]
        self._native.behind = None
        names = ("plan", "run", "commit", "loop", "native")
        return Turn(*(statistics.median(getattr(turn, name) for turn in found) for name in names))

    def overlapped(self, count: int, behind: Callable[[], None] | None) -> float:
        """Median seconds between the launches of two steps where one is booked while the next
        runs. The last measurement: a step is left in flight."""
        engine = Engine(self._engine.scheduler, self._session.runner, overlap=True)
        loop, self._native.behind = EngineLoop(self._connection, engine), behind

        def turns() -> None:
            for _ in range(count + WARM):
                loop.turn()
                self._reader.recv(_MESSAGE, socket.MSG_DONTWAIT)

        engine.serve(turns)
        self._native.behind = None
        return statistics.median(self._native.gaps[-count:])

    def profiled(self, count: int, behind: Callable[[], None] | None) -> list[Spent]:
        """Where so many turns go, medians of each function, the dearest first; the launches are
        left out."""
        own: dict[str, list[float]] = {}
        calls: Counter[str] = Counter()
        self._native.behind = behind
        for _ in range(count):
            profile = cProfile.Profile()
            self.turn(profile.runcall)
            stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]]
            stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
            here: defaultdict[str, float] = defaultdict(float)
            for (file, _, name), (_, number, seconds, _, _) in stats.items():
                if not _is_launch(file, name):
                    here[told(file, name)] += seconds
                    calls[told(file, name)] += number
            for name, seconds in here.items():
                own.setdefault(name, []).append(seconds)
        self._native.behind = None
        most = [name for name in own if len(own[name]) > count // 2]  # in most of the turns
        found = [Spent(name, statistics.median(own[name]), calls[name] / count) for name in most]
        return sorted(found, key=lambda spent: -spent.seconds)

    def counted(self) -> Counts:
        """Counts of some turns that follow."""
        natives, peaks = [], []
        for _ in range(COUNTED):
            natives.append(self._native_calls())
        found = [self._bytecodes() for _ in range(COUNTED)]
        for _ in range(COUNTED):
            peaks.append(self._peak())
        calls = statistics.median_low(calls for calls, _ in found)
        total = statistics.median_low(sum(codes.values()) for _, codes in found)
        each: Counter[str] = Counter()
        for _, codes in found:
            each.update(codes)
        by_code = {name: number / COUNTED for name, number in each.most_common()}
        return Counts(
            calls, statistics.median_low(natives), total, statistics.median_low(peaks), by_code
        )

    def _native_calls(self) -> int:
        """Functions written in C that Python calls by name."""
        count = 0

        def told_of(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event == "c_call" and not self._native.running

        def look(turn: Callable[[], Any]) -> None:
            sys.setprofile(told_of)
            turn()
            sys.setprofile(None)

        self.turn(look)
        return count - 1  # the call that ends it

    def _bytecodes(self) -> tuple[int, Counter[str]]:
        """Calls of Python's functions, and the bytecodes of each."""
        codes: Counter[CodeType] = Counter()
        calls = 0

        def step(frame: FrameType, event: str, argument: object) -> Any:
            codes[frame.f_code] += event == "opcode"
            return step

        def call(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal calls
            if self._native.running:
                return None
            calls += 1
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return step

        def look(turn: Callable[[], Any]) -> None:
            sys.settrace(call)
            turn()
            sys.settrace(None)

        self.turn(look)
        named: Counter[str] = Counter()
        for code, number in codes.items():
            named[told(*_place(code))] += number
        return calls, named

    def _peak(self) -> int:
        def look(turn: Callable[[], Any]) -> None:
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            turn()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            tracemalloc.stop()

        peaks: list[int] = []
        self.turn(look)
        return peaks[0]


def _place(code: CodeType) -> tuple[str, str]:
    return code.co_filename, code.co_name


def _is_launch(file: str, name: str) -> bool:
    """Whether it is part of the launches, or of this bench."""
    return "Profiler" in name or name in ("timed", "launch", "replay", "read_all")


def told(file: str, name: str) -> str:
    """A function as people know it: `run/batch.py fill`, or what it is built in."""
    if file == "~":
        return name.strip("<>")
    return f"{'/'.join(file.split('/')[-2:])} {name}"
