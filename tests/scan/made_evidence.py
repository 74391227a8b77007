"""Made-up looks at a server: a healthy one under load, of which a test changes what it is about."""

from __future__ import annotations

from anychip.bench.diagnose import Seen
from anychip.bench.facts import Poll
from anychip.bench.server_view import DeviceReading, ServerInfo
from anychip.engine.evidence import (
    HANDOVER,
    IO,
    LOCK,
    NATIVE,
    PYTHON,
    Evidence,
    Machine,
    ProcessSeen,
    Spot,
    ThreadSeen,
    Total,
)
from anychip.engine.messages import EngineInfo
from anychip.plan import SchedulerStats

MAX_RUNNING = 8
STEPS = {(NATIVE, "chip"): 0.6, (HANDOVER, "engine"): 0.3, (PYTHON, "runner"): 0.1}
LOOP = {(HANDOVER, "engine"): 0.8, (PYTHON, "schedule"): 0.1, (IO, "engine"): 0.1}
HTTP = {(IO, "server"): 0.7, (PYTHON, "server"): 0.2, (PYTHON, "text"): 0.1}
PLACE = "plugin/memory.py"


def thread(purpose, shares, *, ran=0.3, queued=0.0, interpreter_wait=0.0):
    spots = [
        Spot(
            state=state,
            layer=layer,
            file=PLACE,
            line=12,
            function="allocate",
            text="with self._lock:",
            share=share,
        )
        for (state, layer), share in shares.items()
        if state == LOCK
    ]
    return ThreadSeen(
        tid=1,
        name=purpose,
        purpose=purpose,
        samples=100,
        ran=ran,
        queued=queued,
        interpreter_wait=interpreter_wait,
        totals=tuple(Total(state=s, layer=layer, share=x) for (s, layer), x in shares.items()),
        spots=tuple(spots),
    )


def process(role, *threads, **changes):
    values = {"pid": 1, "seconds": 2.0, "samples": 100, "core_seconds": 1.0, "cores": 4}
    return ProcessSeen(role=role, threads=tuple(threads), **{**values, **changes})


def look(steps=STEPS, loop=LOOP, http=HTTP, *, engine=(), busy=0.25, migrated=0, **thread_changes):
    """steps, loop, http: shares of the three threads; steps None: the loop's thread runs them."""
    own = [thread("loop", loop, **thread_changes)]
    own += [] if steps is None else [thread("steps", steps, **thread_changes)]
    return Evidence(
        seconds=2.0,
        hertz=100.0,
        processes=(
            process("server", thread("http", http, **thread_changes)),
            process("engine", *own, **dict(engine)),
        ),
        machine=Machine(core_busy=(busy,) * 4, pages_migrated=migrated),
    )


def polls(count=4, utilization=None, first=None, waiting=None, **stats):
    """So many readings of the same; first: what was different in the first one."""
    told = {"utilization": utilization, "waiting": waiting}
    values = {"running": 4, "pages_total": 100, "pages_free": 50, "pages_held": 50, **stats}
    firsts = SchedulerStats(**{**values, **(first or {})})
    later = SchedulerStats(**values)
    return tuple(Poll(stats=later if number else firsts, **told) for number in range(count))


def seen(looks=None, read=None, device=None, memory=None, **stats):
    """Everything that `diagnose` reads. device: fields of DeviceReading."""
    engine = EngineInfo(
        backend="plugin",
        device="plugin:0",
        model_name="m",
        vocab_size=300,
        context_length=64,
        page_size=1,
        pages=100,
        max_running=MAX_RUNNING,
        memory=memory or {"total": 1000, "weights": 300, "cache pages": 400},
    )
    info = ServerInfo(
        version="0",
        model="m",
        config={"backend": "plugin"},
        engine=engine,
        stats=SchedulerStats(**{"pages_total": 100, **stats}),
        state="ready",
        pids={},
    )
    read = read or polls()
    healthy = {"free": 2.0**30, "largest": 2.0**30, "fragmentation": 0.05}
    return Seen(
        info=info,
        device=DeviceReading(**(healthy if device is None else device)),
        looks=tuple(looks or [look()]),
        polls=read,
    )
