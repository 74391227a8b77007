"""What a streamed token costs each of a server's processes, beside the model: µs of processor time.

    .venv/bin/python bench/token_costs.py [MODEL] [--streams 1 64] [--tokens 128] [--flags ...]

A server of its own over HTTP, greedy answers of a fixed length as events. The engine process
computes the model too; the server process is what is told here. The client's time is its own.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from command_line import count, need_model
from race.completions import MODEL
from race.processes import PROC, family
from race.server import Server, ServerFailed, free_port
from race.workloads import HIGHEST, LOWEST, Batch, Job

from anychip.model.demo import demo_model_path

PROMPT, REPEATS, LIMIT_S = 16, 3, 300.0
ENGINE = b"anychip.engine.process"


def cpu_seconds(pid: int) -> float:
    """Processor time of a process's threads so far. OSError where it has ended."""
    tasks = (PROC / str(pid) / "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def processes(root: int) -> dict[str, int]:
    """The server's and the engine's id. Raises SystemExit where one is missing."""
    found = {"server": root}
    for pid in family(root):
        if ENGINE in (PROC / str(pid) / "cmdline").read_bytes():
            found["engine"] = pid
    if "engine" not in found:
        raise SystemExit("the server has no engine process")
    return found


def batch(streams: int, tokens: int, repeat: int) -> Batch:
    """Requests that share nothing."""
    draw = partial(random.Random(f"{streams} {repeat}").randrange, LOWEST, HIGHEST)
    jobs = tuple(Job(tuple(draw() for _ in range(PROMPT)), tokens) for _ in range(streams))
    return Batch(f"{streams} streams", jobs, streams)


def measure(server: Server, pids: dict[str, int], streams: int, tokens: int) -> str:
    """One line of the table: medians of some repeats behind one that does not count."""
    found: dict[str, list[float]] = {name: [] for name in pids}
    rates = []
    for repeat in range(REPEATS + 1):
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        run = server.run(batch(streams, tokens, repeat), LIMIT_S)
        for name, pid in pids.items():
            found[name].append((cpu_seconds(pid) - before[name]) / (streams * tokens) * 1e6)
        rates.append(streams * tokens / run.wall)
    told = [f"{statistics.median(found[name][1:]):,.0f}" for name in ("server", "engine")]
    return f"| {streams} | {' | '.join(told)} | {statistics.median(rates[1:]):,.0f} |"


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", help="[the demo model]")
    parser.add_argument("--streams", type=count, nargs="+", default=(1, 64), metavar="N")
    parser.add_argument("--tokens", type=count, default=128, help="of each answer [%(default)s]")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="for the server")
    asked = parser.parse_args()
    asked.model = asked.model or demo_model_path(Path("~/.cache/anychip").expanduser())
    need_model(asked.model)
    port = free_port()
    words = [sys.executable, "-m", "anychip", "serve", "--model-path", str(asked.model)]
    words += ["--port", str(port), "--served-model-name", MODEL, *asked.flags]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with Server(["env", *words], port, log) as server:
            try:
                server.first_token(LIMIT_S)
                print("| streams | server, µs a token | engine, µs a token | tokens/s |")
                print("|---|---|---|---|")
                for streams in asked.streams:
                    print(measure(server, processes(server.pid), streams, asked.tokens))
            except ServerFailed as error:
                raise SystemExit(str(error)) from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
