"""What a router adds to each call: the same calls to one worker, directly and through it, in turn.

    .venv/bin/python bench/router_cost.py [--streams 1 16 64] [--seconds 4] [--repeats 5]

The worker is bench/routing/scripted_worker.py, which answers at once, so nothing hides what the
router takes: a real worker's tokens come far apart. "call" is one short answer at a time for each
client; "stream" is a stream of 200 tokens without any pause, in tokens a second.
Worker, router and clients are a process each.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from command_line import count, need, seconds
from race.figures import percentile

WORKER = Path(__file__).parent / "routing" / "scripted_worker.py"
TOKENS = 200
START_S = 60.0


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--streams", type=count, nargs="+", default=[1, 16, 64], metavar="N", help="[1 16 64]")
    add("--seconds", type=seconds, default=4.0, metavar="S", help="of each go [%(default)s]")
    add("--repeats", type=count, default=5, metavar="N", help="of each pair [%(default)s]")
    add("--prompt", type=count, default=2000, metavar="N", help="token ids [%(default)s]")
    add("router", nargs="*", help="further words for `anychip router`, behind --")
    return parser.parse_args()


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process ends with the block."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def scripted() -> Iterator[str]:
    """The URL of a scripted worker."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ended(subprocess.Popen([sys.executable, WORKER, str(port)], text=True)) as worker:
        deadline = time.monotonic() + START_S
        while worker.poll() is None and time.monotonic() < deadline:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def routed(worker: str, further: list[str]) -> Iterator[str]:
    """The URL of a router before this worker. Raises SystemExit where it does not start."""
    command = [sys.executable, "-m", "anychip", "router", "--port", "0"]
    command += ["--worker", f"w={worker}", *further]
    with ended(subprocess.Popen(command, stderr=subprocess.PIPE, text=True)) as router:
        log = router.stderr or []
        found = next(filter(None, (re.search(r"ready.* (http://\S+)", line) for line in log)), None)
        if found is None:
            raise SystemExit(f"the router ended with {router.wait()}: {' '.join(command)}")
        threading.Thread(target=deque, args=(log, 0), daemon=True).start()  # or the pipe fills
        yield found[1].rstrip(",;.")


async def until_ready(http: aiohttp.ClientSession, url: str) -> None:
    """A call is answered. Raises SystemExit where none is for a minute."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        async with http.post(f"{url}/v1/completions", json={"prompt": [1], "max_tokens": 1}) as got:
            if got.status == 200:
                return
        await asyncio.sleep(0.1)
    raise SystemExit(f"{url} answers no call")


async def one(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    """One call, read to its end. Raises SystemExit for an error."""
    async with http.post(f"{url}/v1/completions", json=body) as answer:
        told = await answer.read()
        if answer.status != 200 or (body["stream"] and not told.endswith(b"[DONE]\n\n")):
            raise SystemExit(f"{url}: {answer.status}: {told[-300:].decode()}")


async def go(url: str, streams: int, asked: argparse.Namespace, *, stream: bool) -> list[float]:
    """Clients ask again and again; milliseconds of each call, and the seconds of all at the end."""
    body = {"prompt": list(range(asked.prompt)), "stream": stream}
    body["max_tokens"] = TOKENS if stream else 1
    taken: list[float] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        await until_ready(http, url)
        began = time.perf_counter()

        async def client() -> None:
            while time.perf_counter() - began < asked.seconds:
                start = time.perf_counter()
                await one(http, url, body)
                taken.append(1000 * (time.perf_counter() - start))

        await asyncio.gather(*(client() for _ in range(streams)))
        taken.append(time.perf_counter() - began)
    return taken


async def compare(
    urls: dict[str, str], streams: int, asked: argparse.Namespace, *, stream: bool
) -> dict[str, list[float]]:
    """p50 and p99 in ms, and calls a second, of each: medians of the repeats, made in turn."""
    found: dict[str, list[list[float]]] = {name: [] for name in urls}
    for _ in range(asked.repeats):
        for name, url in urls.items():
            *taken, whole = await go(url, streams, asked, stream=stream)
            p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
            found[name].append([p50, p99, len(taken) / whole])
    return {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in found.items()
    }


def rows(streams: int, calls: dict[str, list[float]], told: dict[str, list[float]]) -> str:
    """A line of the table."""
    (p50, p99, rate), (r50, r99, routed_rate) = calls["direct"], calls["routed"]
    tokens = [TOKENS * told[name][2] for name in ("direct", "routed")]
    cells = (
        str(streams),
        f"{p50:.2f} / {p99:.2f}",
        f"{r50:.2f} / {r99:.2f}",
        f"{r50 - p50:+.2f} / {r99 - p99:+.2f}",
        f"{rate:,.0f}",
        f"{routed_rate:,.0f}",
        f"{tokens[0]:,.0f}",
        f"{tokens[1]:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


async def measure(urls: dict[str, str], asked: argparse.Namespace) -> None:
    """The table, line by line."""
    print("| at once | direct, p50 / p99 ms | routed | added | direct, calls/s | routed ", end="")
    print("| direct, tok/s | routed |\n|---|---|---|---|---|---|---|---|", flush=True)
    for streams in asked.streams:
        calls = await compare(urls, streams, asked, stream=False)
        told = await compare(urls, streams, asked, stream=True)
        print(rows(streams, calls, told), flush=True)


def main() -> None:
    """Start both, measure, end both."""
    asked = arguments()
    need("aiohttp")
    with scripted() as worker, routed(worker, asked.router) as router:
        asyncio.run(measure({"direct": worker, "routed": router}, asked))


if __name__ == "__main__":
    main()
