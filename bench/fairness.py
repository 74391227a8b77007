"""How much running streams notice of a long prompt: gaps between their tokens, before and while.

.venv/bin/python bench/fairness.py [MODEL] [--prompt 4000] [--streams 12] [--targets MS ...]

One server a setting: paced as served by default, with `--target-tpot-ms` for each target, and not
paced at all (a target that is never reached). Streams decode greedily; when each has had some
tokens the prompt is sent. A gap is the time between two tokens of a stream as its client sees it.
"while" are the gaps that end between the sending of the prompt and its first token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import httpx

LOWEST, HIGHEST = 1000, 20000  # ordinary word pieces
WARM_TOKENS = 60
STREAM_TOKENS = 6000
MOST_S = 300
NOT_PACED_MS = 1e9


def prompt(length: int, seed: str) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(LOWEST, HIGHEST) for _ in range(length)]


@asynccontextmanager
async def served(model: str | None, flags: list[str]) -> AsyncIterator[str]:
    """The URL of a server that ends with the block."""
    command = [sys.executable, "-m", "anychip", "serve", "--port", "0", *flags]
    command += ["--model-path", model] if model else []
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = server.stderr or []
    try:
        found = next(
            filter(None, (re.search(r"ready: .* (http://\S+)", line) for line in log)), None
        )
        if found is None:
            raise SystemExit(f"the server ended with {server.wait()}: run {' '.join(command)}")
        threading.Thread(target=deque, args=(log, 0), daemon=True).start()  # or the pipe fills
        yield found[1]
    finally:
        server.terminate()
        server.wait(30)


async def stream(
    client: httpx.AsyncClient, tokens: list[int], length: int, into: list[float]
) -> None:
    """Times at which tokens come, until the server has no more or the task is cancelled."""
    body = {
        "prompt": tokens,
        "max_tokens": length,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise SystemExit(f"{answer.status_code}: {(await answer.aread()).decode()}")
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                into.append(time.perf_counter())


async def measure(url: str, streams: int, length: int, repeat: int) -> dict[str, float]:
    """One arrival of a long prompt among running streams. Milliseconds."""
    limits = httpx.Limits(max_connections=streams + 1)
    async with httpx.AsyncClient(base_url=url, timeout=MOST_S, limits=limits) as client:
        times: list[list[float]] = [[] for _ in range(streams)]
        running = [
            asyncio.create_task(
                stream(client, prompt(16, f"{repeat}-{n}"), STREAM_TOKENS, times[n])
            )
            for n in range(streams)
        ]
        try:
            while min(map(len, times)) < WARM_TOKENS:
                await first_failure(running, 0.05)
            sent, first = time.perf_counter(), []
            await stream(client, prompt(length, f"long-{repeat}"), 1, first)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return compare(times, sent, first[0])


async def first_failure(running: list[asyncio.Task[None]], seconds: float) -> None:
    done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
        raise SystemExit("a stream ended before the prompt was sent")


def compare(times: list[list[float]], sent: float, first: float) -> dict[str, float]:
    """Medians of streams, the worst of them, and the 99th percentile of all gaps."""
    before, during = [], []
    for stamps in times:
        gaps = [(end, 1000 * (end - start)) for start, end in pairwise(stamps)]
        before.append([gap for end, gap in gaps[WARM_TOKENS // 2 :] if end <= sent])
        during.append([gap for end, gap in gaps if sent < end <= first])
    usual = statistics.median(gap for gaps in before for gap in gaps)
    every = sorted(gap for gaps in during for gap in gaps)
    ratios = [
        statistics.median(d) / statistics.median(b) for b, d in zip(before, during, strict=True)
    ]
    return {
        "gap before, median, ms": usual,
        "gap while, median, ms": statistics.median(every),
        "gap while, p99, ms": every[min(len(every) - 1, int(0.99 * len(every)))],
        "worst stream's median ratio": max(ratios),
        "p99 ratio": every[min(len(every) - 1, int(0.99 * len(every)))] / usual,
        "first token of the prompt, s": first - sent,
    }


async def run(asked: argparse.Namespace, flags: list[str]) -> list[dict[str, float]]:
    async with served(asked.model, [*flags, *asked.flags]) as url:
        await measure(url, asked.streams, asked.prompt, -1)  # sizes are prepared on first use
        found = []
        for repeat in range(asked.repeats):
            found.append(await measure(url, asked.streams, asked.prompt, repeat))
            told = ", ".join(f"{name} {value:.3g}" for name, value in found[-1].items())
            print(f"  {repeat + 1} of {asked.repeats}: {told}", file=sys.stderr, flush=True)
        return found


def main() -> None:
    """Print a Markdown table, a row a setting: medians of the repeats."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="folder or .gguf [the demo model]")
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--targets", type=float, nargs="*", default=[], metavar="MS")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="file for the figures of every repeat")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="more for the server")
    asked = parser.parse_args()
    if min(asked.repeats, asked.streams, asked.prompt) < 1:
        parser.error("--repeats, --streams and --prompt: 1 or more")
    settings = {"default": [], "not paced": ["--target-tpot-ms", str(NOT_PACED_MS)]}
    settings |= {f"target {ms:g} ms": ["--target-tpot-ms", str(ms)] for ms in asked.targets}
    found = {}
    for name, flags in settings.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        found[name] = asyncio.run(run(asked, flags))
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(found, file, indent=1)
    columns = list(found["default"][0])
    print("| setting | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, runs in found.items():
        cells = [f"{statistics.median(run[c] for run in runs):.3g}" for c in columns]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
