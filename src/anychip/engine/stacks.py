"""Samples the stacks of this process's threads, with what each waited for."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from types import FrameType
from typing import NamedTuple

from anychip.contract.registration import ENTRY_POINT_GROUP
from anychip.engine import evidence as told
from anychip.engine.evidence import ProcessSeen, Spot, ThreadSeen, Total
from anychip.engine.kernel_facts import (
    ProcessFigures,
    ThreadTimes,
    process_figures,
    thread_times,
)
from anychip.engine.thread_states import (
    BLOCKED,
    FUTEX,
    RUNNING,
    SYSCALL,
    WANTS_INTERPRETER,
    ThreadStates,
)

_OURS = "anychip"
_MOST_SPOTS = 12
_LAYERS: Mapping[str, str] = {
    **dict.fromkeys(("chips", "contract", "hostops", "sdkbase", "torchbase"), "chip"),
    **dict.fromkeys(("run", "ops", "model"), "runner"),
    **dict.fromkeys(("engine", "offline", "schedule", "grammar", "text", "server"), ""),
}
"""Layer of each folder of ours; empty: its own name."""
_THREADING = frozenset(("threading", "queue", "concurrent.futures._base"))
_LOOPS = frozenset(("asyncio", "uvloop"))
"""Frames below an event loop's own say nothing about the callback that it runs."""
_TAKES = frozenset(("acquire", "__enter__", "__aenter__"))
_AWAITS = (".get(", ".wait(", ".join(", ".result(", ".recv(", "select(", ".poll(")


class _Where(NamedTuple):
    """A sampled line. entered: the function of `threading` or `queue` that it called, or empty."""

    file: str
    line: int
    function: str
    layer: str
    entered: str


def sample_process(
    role: str,
    seconds: float,
    hertz: float,
    purposes: Mapping[int, str],
    ended: threading.Event | None = None,
) -> ProcessSeen:
    """Look at every other thread of this process, from the calling thread, for some seconds.

    purposes: what threads are for, by native id. ended: cuts the look short once it is set.
    """
    sampler = _Sampler(ended or threading.Event())
    try:
        before, held = thread_times(), process_figures()
        begun = time.monotonic()
        sampler.run(begun + seconds, 1 / hertz)
        lasted = time.monotonic() - begun
        after, now = thread_times(), process_figures()
    finally:
        sampler.close()
    used = {tid: _spent(before.get(tid), times) for tid, times in after.items()}
    threads = tuple(sampler.threads(used, lasted, purposes))
    native = [times for tid, times in used.items() if tid not in sampler.known]
    return _process(role, (lasted, sampler.samples), (held, now), threads, native, sampler.told)


def _process(
    role: str,
    size: tuple[float, int],
    figures: tuple[ProcessFigures, ProcessFigures],
    threads: tuple[ThreadSeen, ...],
    native: Collection[ThreadTimes],
    kernel_states: bool,
) -> ProcessSeen:
    before, now = figures
    return ProcessSeen(
        role=role,
        pid=os.getpid(),
        seconds=size[0],
        samples=size[1],
        core_seconds=now.core_seconds - before.core_seconds,
        cores=len(os.sched_getaffinity(0)),
        threads=threads,
        native_threads=len(native),
        native_core_seconds=sum(times.ran for times in native),
        major_faults=now.major_faults - before.major_faults,
        minor_faults=now.minor_faults - before.minor_faults,
        voluntary_switches=now.voluntary_switches - before.voluntary_switches,
        swap_bytes=now.swap_bytes,
        resident_bytes=now.resident_bytes,
        kernel_states=kernel_states,
    )


def _spent(before: ThreadTimes | None, after: ThreadTimes) -> ThreadTimes:
    begun = before or ThreadTimes()
    return ThreadTimes(after.ran - begun.ran, after.queued - begun.queued)


class _Sampler:
    """Counts what threads were seen at."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended, self._states = ended, ThreadStates()
        self._own = threading.get_ident()
        self._counts: dict[int, Counter[tuple[str, _Where]]] = defaultdict(Counter)
        self._names: dict[int, str] = {}
        chips = entry_points(group=ENTRY_POINT_GROUP)
        self._chips = {entry.value.partition(".")[0] for entry in chips} | {_OURS}
        self.known = {threading.get_native_id()}
        """Native ids of threads that run Python, the sampling one among them."""
        self.samples = 0

    @property
    def told(self) -> bool:
        """Whether the kernel tells what threads wait for."""
        return self._states.told

    def run(self, until: float, pause_s: float) -> None:
        """Take samples until that moment; at least one."""
        while True:
            begun = time.monotonic()
            self._take()
            self.samples += 1
            now = time.monotonic()
            if now >= until or self._ended.is_set():
                return
            self._ended.wait(min(max(begun + pause_s - now, 0.0), until - now))

    def _take(self) -> None:
        threads = {t.ident: t for t in threading.enumerate() if t.ident != self._own}
        for thread in threads.values():
            if thread.native_id is not None:
                self._states.add(thread.native_id)
                self._names[thread.native_id] = thread.name
                self.known.add(thread.native_id)
        frames = sys._current_frames()  # noqa: SLF001 (documented, and the only way)
        seen = []
        for ident, thread in threads.items():
            frame = frames.get(ident or 0)
            if frame is not None and thread.native_id is not None:
                seen.append((thread.native_id, ident, frame, frame.f_lasti))
        states = self._states.of_all([tid for tid, *_ in seen])
        later = sys._current_frames()  # noqa: SLF001
        for tid, ident, frame, at in seen:
            moved = later.get(ident or 0) is not frame or frame.f_lasti != at
            where = self._where(frame)
            self._counts[tid][WANTS_INTERPRETER if moved else states[tid], where] += 1

    def _where(self, frame: FrameType) -> _Where:
        """The innermost line that tells something: ours or a chip's, else outside of threading."""
        entered, chosen, library = "", None, None
        for module, one in _outwards(frame):
            top = module.partition(".")[0]
            if module in _THREADING and chosen is None and library is None:
                entered = one.f_code.co_name
            elif top in self._chips:
                chosen = (module, one)
                break
            elif top in _LOOPS and library is not None:
                break
            elif library is None:
                library = (module, one)
        module, at = chosen or library or ("", frame)
        file, function = at.f_code.co_filename, at.f_code.co_name
        # A frame that has not begun, or that Python made up a step for, has no line of its own.
        line = at.f_lineno or at.f_code.co_firstlineno
        return _Where(file, line, function, self._layer(frame), entered)

    def _layer(self, frame: FrameType) -> str:
        """By the innermost module of ours; a chip's own package outside of ours is a chip too."""
        passed_loop = False
        for module, _ in _outwards(frame):
            top, _, rest = module.partition(".")
            if top in self._chips and top != _OURS:
                return "chip"
            if top == _OURS:
                folder = rest.partition(".")[0]
                return "server" if passed_loop else _LAYERS.get(folder, "other") or folder
            passed_loop = passed_loop or top in _LOOPS
        return "other"

    def threads(
        self, used: Mapping[int, ThreadTimes], seconds: float, purposes: Mapping[int, str]
    ) -> Iterator[ThreadSeen]:
        """What was seen of each thread, the busiest first."""
        for tid in sorted(self._counts, key=lambda tid: -used.get(tid, ThreadTimes()).ran):
            times, counts = used.get(tid, ThreadTimes()), self._counts[tid]
            total = counts.total()
            spots = tuple(_spots(counts))
            ran, queued = times.ran / seconds, times.queued / seconds
            totals = tuple(_totals(spots))
            running = sum(t.share for t in totals if t.state in (told.PYTHON, told.NATIVE))
            yield ThreadSeen(
                tid=tid,
                name=self._names[tid],
                purpose=purposes.get(tid, ""),
                samples=total,
                ran=ran,
                queued=queued,
                interpreter_wait=max(0.0, running - ran - queued),
                totals=totals,
                spots=spots[:_MOST_SPOTS],
            )

    def close(self) -> None:
        """Give back the files."""
        self._states.close()


def _outwards(frame: FrameType) -> Iterator[tuple[str, FrameType]]:
    at: FrameType | None = frame
    while at is not None:
        yield str(at.f_globals.get("__name__", "")), at
        at = at.f_back


def _spots(counts: Counter[tuple[str, _Where]]) -> list[Spot]:
    total = counts.total()
    merged: Counter[tuple[str, _Where]] = Counter()
    waits = {where: _wait(where) for state, where in counts if state == FUTEX}
    for (state, where), count in counts.items():
        waiting = waits.get(where, "")
        # Woken, and on its way out of the wait, for which it needs a core and the interpreter.
        woken = state in (RUNNING, WANTS_INTERPRETER) and waiting in (told.LOCK, told.HANDOVER)
        merged[waiting if woken else _meaning(state, where), where] += count
    return [
        Spot(
            state=state,
            layer=where.layer,
            file=_short(where.file),
            line=where.line,
            function=where.function,
            text=linecache.getline(where.file, where.line).strip()[:120],
            share=count / total,
        )
        for (state, where), count in merged.most_common()
    ]


def _totals(spots: Iterable[Spot]) -> Iterator[Total]:
    shares: dict[tuple[str, str], float] = defaultdict(float)
    for spot in spots:
        shares[spot.state, spot.layer] += spot.share
    for (state, layer), share in sorted(shares.items(), key=lambda item: -item[1]):
        yield Total(state=state, layer=layer, share=share)


_PLAIN = {
    RUNNING: told.NATIVE,
    WANTS_INTERPRETER: told.PYTHON,
    BLOCKED: told.FAULT,
    SYSCALL: told.IO,
}


def _meaning(state: str, where: _Where) -> str:
    """What a state of the kernel means at a line."""
    if state in _PLAIN:
        return _PLAIN[state]
    waits = _wait(where)
    if state != FUTEX and waits == told.NATIVE_WAIT:
        return told.IO  # asleep, and nobody says for what
    return waits


def _wait(where: _Where) -> str:
    if where.entered:
        return told.LOCK if where.entered in _TAKES else told.HANDOVER
    text = linecache.getline(where.file, where.line).strip()
    if ".acquire(" in text or text.startswith(("with ", "async with ")):
        return told.LOCK
    return told.HANDOVER if any(word in text for word in _AWAITS) else told.NATIVE_WAIT


def _short(file: str) -> str:
    """From the package on; a folder that Python is installed in is left out."""
    for folder in sorted({*sysconfig.get_paths().values(), *sys.path}, key=len, reverse=True):
        if folder and file.startswith(folder + os.sep):
            return file[len(folder) + 1 :]
    return file
