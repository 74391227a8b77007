"""What watching a server costs: records, logs, traces, timed steps, telemetry, scrapes.

    .venv/bin/python bench/observing_costs.py [MODEL] [--streams 1 16] [--tokens 96] [--repeats 5]

Two servers are up at a time, one with nothing of it and one with one kind of watching; batches go
to them in turn (A B, B A, ...). Told is the output's rate against the bare server's, pair by pair,
and what each output token costs more in processor time of the server's processes, which other
programs disturb less. The collector of the traces is a process of this bench that throws away what
it is sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from race.completions import HOST, MODEL, run_batch
from race.processes import end
from race.server import Server, free_port
from race.workloads import HIGHEST, LOWEST, Batch, Job

from anychip.model.demo import demo_model_path

TICKS = os.sysconf("SC_CLK_TCK")
START_S, BATCH_S = 120.0, 600.0

BARE = ["--operator-timing-interval", "0", "--telemetry-interval", "3600"]
"""Nothing is watched; counters and histograms are always kept."""

SINK = """
import http.server, sys
class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *parts): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
"""


def ways(folder: Path, collector: int) -> dict[str, list[str]]:
    """Way of watching -> flags beside those that bare servers have; later flags win."""
    traces = ["--otlp-traces-endpoint", f"http://{HOST}:{collector}"]
    log = ["--access-log", str(folder / "access.log"), "--log-format", "json"]
    record = ["--record", str(folder / "record.jsonl")]
    telemetry, timed = ["--telemetry-interval", "1"], ["--operator-timing-interval", "512"]
    return {
        "nothing (two equal servers)": [],
        "telemetry each second": telemetry,
        "one step of 512 timed": timed,
        "one step of 64 timed": ["--operator-timing-interval", "64"],
        "/metrics read each second": [],
        "access log, JSON": log,
        "record": record,
        "traces of every call": traces,
        "all of these (1 of 512)": [*telemetry, *timed, *log, *record, *traces],
    }


SCRAPED = ("/metrics read each second", "all of these (1 of 512)")


def batch(streams: int, tokens: int, seed: str) -> Batch:
    """As many prompts of 32 tokens, which share nothing."""
    draw = Random(seed).randrange
    prompts = (tuple(draw(LOWEST, HIGHEST) for _ in range(32)) for _ in range(streams))
    return Batch(seed, tuple(Job(prompt, tokens) for prompt in prompts), streams)


def seconds_on_cores(pids: Sequence[int]) -> float:
    """Processor time that these processes have had so far."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(found[11]) + int(found[12]) for found in fields) / TICKS


class Watched:
    """A running server and what it has cost."""

    def __init__(self, stack: ExitStack, flags: list[str], log: Path, *, scraped: bool) -> None:
        self._port = free_port()
        command = ["env", sys.executable, "-m", "anychip", "serve", "--port", str(self._port)]
        command += ["--served-model-name", MODEL, *BARE, *flags]
        server = stack.enter_context(Server(command, self._port, log))
        server.first_token(START_S)
        self._pids = server.pids
        if scraped:
            stack.enter_context(self._scraping())

    def run(self, work: Batch) -> tuple[float, float]:
        """Output tokens a second, and microseconds of processor time for each."""
        before = seconds_on_cores(self._pids)
        wall = asyncio.run(run_batch(self._port, work, BATCH_S)).wall
        spent = seconds_on_cores(self._pids) - before
        return work.asked / wall, 1e6 * spent / work.asked

    @contextmanager
    def _scraping(self) -> Iterator[None]:
        done = threading.Event()

        def scrape() -> None:
            while not done.wait(1.0):
                urllib.request.urlopen(f"http://{HOST}:{self._port}/metrics", timeout=30).read()

        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def compared(asked: argparse.Namespace, way: str, flags: list[str], logs: Path) -> list[dict]:
    """Each pair of each number of streams."""
    found, model = [], ["--model-path", asked.model]
    with ExitStack() as stack:
        pair = {
            "bare": Watched(stack, [*model, *asked.flags], logs / "bare.log", scraped=False),
            "watched": Watched(
                stack,
                [*model, *asked.flags, *flags],
                logs / "watched.log",
                scraped=way in SCRAPED,
            ),
        }
        for streams in asked.streams:
            for server in pair.values():  # sizes are prepared on first use
                server.run(batch(streams, asked.tokens, f"warm {streams}"))
            for repeat in range(asked.repeats):
                order = list(pair) if repeat % 2 else list(pair)[::-1]
                work = batch(streams, asked.tokens, f"{streams} {repeat}")
                figures = {name: pair[name].run(work) for name in order}
                found.append({"way": way, "streams": streams, **figures})
                print(f"{way}, {streams} streams: {figures}", file=sys.stderr, flush=True)
    return found


@contextmanager
def collector() -> Iterator[int]:
    """The port of a collector that throws away what it gets."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SINK, str(port)], start_new_session=True)
    try:
        yield port
    finally:
        end(process)


def table(found: Sequence[dict]) -> Iterator[str]:
    """Markdown: medians over the pairs."""
    yield "| watching | streams | output, of bare | least | most | us of processor a token | more |"
    yield "|---" * 7 + "|"
    for way, streams in dict.fromkeys((one["way"], one["streams"]) for one in found):
        pairs = [one for one in found if (one["way"], one["streams"]) == (way, streams)]
        rates = [one["watched"][0] / one["bare"][0] for one in pairs]
        cost = statistics.median(one["watched"][1] for one in pairs)
        more = statistics.median(one["watched"][1] - one["bare"][1] for one in pairs)
        yield (
            f"| {way} | {streams} | {statistics.median(rates):.3f} | {min(rates):.3f} "
            f"| {max(rates):.3f} | {cost:,.0f} | {more:+,.0f} |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="folder or .gguf [the demo model]")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--tokens", type=int, default=96, help="of each answer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--only", nargs="+", default=[""], help="ways whose names hold one of these"
    )
    parser.add_argument("--json", help="file for the figures of every pair")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="for both servers")
    asked = parser.parse_args()
    if min(asked.repeats, asked.tokens, *asked.streams) < 1:
        parser.error("--repeats, --tokens and --streams: 1 or more")
    asked.model = asked.model or str(demo_model_path(Path("~/.cache/anychip").expanduser()))
    found: list[dict] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, collector() as port:
        for way, flags in ways(Path(folder), port).items():
            if any(part in way for part in asked.only):
                found += compared(asked, way, flags, Path(folder))
    print(*table(found), f"\n{time.monotonic() - begun:.0f} s", sep="\n")
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
