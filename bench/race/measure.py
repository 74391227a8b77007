"""Runs the race: engine by engine, repeat by repeat, each alone, every result kept at once."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from race.completions import WrongAnswer
from race.engines import ROOM, Engine, Skipped
from race.figures import figures_of, rounded
from race.roofline import Work, work_of
from race.server import Server, ServerFailed, free_port
from race.targets import OVERHEAD_MIB
from race.workloads import Batch, batches, warm_up

DECODE_CONTEXT = 192
"""Positions that a token of W1 attends to, on average."""

LONG = 4096
"""Tokens of W4's prompt."""

BUSY_SHARE, BUSY_SECONDS = 0.05, 1.0
"""Above this share of the cores in others' hands, a warning is kept with the results."""


@dataclass(frozen=True)
class Limits:
    """Seconds: until a server's first token, and for one batch."""

    start: float
    batch: float


class Race:
    """Engines, workloads, and the folder that takes results.jsonl and the servers' logs."""

    def __init__(
        self, out: Path, works: Sequence[str], *, repeats: int, shrink: int, limits: Limits
    ) -> None:
        self._out, self._works, self._repeats = out, works, repeats
        self._shrink, self._limits = shrink, limits
        self._model: dict[str, Work] = {}

    def run(self, engines: Sequence[Engine], skipped: Sequence[Skipped]) -> None:
        """Raises CheckpointError, OSError; what goes wrong with one server is kept and told."""
        self._keep("race", began=_now(), repeats=self._repeats, shrink=self._shrink)
        for each in skipped:
            self._keep("skipped", engine=each.name, why=each.why)
        for engine in engines:
            self._describe(engine)
        versions = {engine.name: version_of(engine) for engine in engines}
        for repeat in range(self._repeats):
            self._measure_machine(repeat)
            for engine in engines:
                say(f"repeat {repeat + 1} of {self._repeats}: {engine.name}")
                self._wait_for_quiet(engine, repeat)
                try:
                    self._one(engine, repeat, versions[engine.name])
                except (ServerFailed, WrongAnswer) as error:
                    say(f"  FAILED: {error}")
                    self._keep("error", engine=engine.name, repeat=repeat, why=str(error))

    def _describe(self, engine: Engine) -> None:
        """The work that its weights are."""
        work = self._model[engine.name] = work_of(engine.model, engine.quantization)
        held = (work.weight_bytes + ROOM * work.cache_bytes) / 2**20 + OVERHEAD_MIB
        self._keep(
            "model",
            engine=engine.name,
            step_bytes=int(work.decode_bytes(DECODE_CONTEXT)),
            long_flops=work.prefill_flops(LONG // self._shrink),
            held_mib=held,
        )

    def _measure_machine(self, repeat: int) -> None:
        say("measuring the machine's rates")
        sizes = {int(work.decode_bytes(DECODE_CONTEXT)) for work in self._model.values()}
        program = Path(__file__).with_name("machine.py")
        line = [sys.executable, str(program), *map(str, sorted(sizes))]
        done = subprocess.run(line, check=True, stdout=subprocess.PIPE, timeout=300)
        self._keep("machine", repeat=repeat, **json.loads(done.stdout))

    def _wait_for_quiet(self, engine: Engine, repeat: int) -> None:
        """Nobody is asked to stop; what they use is told."""
        share = busy_share(BUSY_SECONDS)
        if share > BUSY_SHARE:
            say(f"  others use {share:.0%} of the cores: this run is not worth much")
            self._keep("busy", engine=engine.name, repeat=repeat, share=share)

    def _one(self, engine: Engine, repeat: int, version: str) -> None:
        port = free_port()
        command = engine.command(port)
        log = self._out / f"{engine.name}.log"
        with Server(command, port, log) as server:
            start = server.first_token(self._limits.start)
            say(f"  first token after {start:.2f} s")
            server.run(warm_up(self._shrink), self._limits.batch)
            for work in self._works:
                for batch in batches(work, repeat, self._shrink):
                    self._batch(server, engine, repeat, batch)
        if server.stubborn:
            say(f"  had to be killed: {server.stubborn}")
        memory = server.memory
        say(f"  peak memory {memory.peak:,.0f} MiB in {memory.processes} processes")
        self._keep(
            "server",
            engine=engine.name,
            family=engine.family.name,
            width=engine.width,
            work="server",
            repeat=repeat,
            start_s=start,
            peak_mib=memory.peak,
            shared_once_mib=memory.shared_once,
            processes=memory.processes,
            killed=len(server.stubborn),
            version=version,
            command=shlex.join(command),
        )

    def _batch(self, server: Server, engine: Engine, repeat: int, batch: Batch) -> None:
        try:
            found = figures_of(server.run(batch, self._limits.batch))
        except WrongAnswer as error:
            say(f"  {batch.label}: {error}")
            why = f"{batch.label}: {error}"
            self._keep("error", engine=engine.name, repeat=repeat, why=why)
            return
        say(f"  {batch.label:6} {_summary(found)}")
        self._keep("batch", engine=engine.name, width=engine.width, repeat=repeat, **found)

    def _keep(self, kind: str, **line: object) -> None:
        with (self._out / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **line}) + "\n")


def say(line: str) -> None:
    """Progress, on the error stream: the report alone goes to the other."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z")


def _summary(found: Mapping[str, object]) -> str:
    words = {
        "wall_s": "s",
        "output_rate": "tok/s out",
        "first_mean_ms": "ms to the first token",
        "token_mean_ms": "ms a token",
    }
    numbers = [(found[key], unit) for key, unit in words.items() if key in found]
    return ", ".join(f"{rounded(float(str(number)))} {unit}" for number, unit in numbers)


def version_of(engine: Engine) -> str:
    """What the program says, its last line; what went wrong where it says none."""
    done = subprocess.run(
        engine.version_command(), capture_output=True, text=True, timeout=300, check=False
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    version = [line for line in lines if "version" in line.lower()] or lines[-1:]
    return version[0].strip() if version else f"no version (it ended with {done.returncode})"


def busy_share(seconds: float, read: Callable[[], str] | None = None) -> float:
    """The share of all cores' time that was not idle, over some seconds. read: /proc/stat."""
    read = read or Path("/proc/stat").read_text
    before = _ticks(read())
    time.sleep(seconds)
    after = _ticks(read())
    spent = [later - earlier for earlier, later in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]
    return 1 - idle / sum(spent) if sum(spent) else 0.0


def _ticks(text: str) -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal: of all cores together."""
    return [int(word) for word in text.splitlines()[0].split()[1:9]]
