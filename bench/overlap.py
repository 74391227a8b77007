"""What a server gains by booking a step while the next one runs: output with and without.

    .venv/bin/python bench/overlap.py [MODEL] [--streams 1 8 64] [--tokens 128] [--flags ...]

Two engine processes, asked in turn (A B, B A, ...) by this process as a server would, without
HTTP. Greedy, prompts of 16 tokens that share nothing. A ratio is of one pair.

`--step-ms MS` puts a device in the model's place that computes by itself for so long a step
(idle/idle_device.py): what overlap gains where the device does not need this machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from anychip.config import read_config
from anychip.engine.client import DEFAULT_BUILDER, EngineClient
from anychip.model.demo import demo_model_path
from anychip.request import Request, SamplingParams

LOWEST, HIGHEST = 1000, 20000  # ordinary word pieces
MODES = {"off": ["--disable-overlap-schedule"], "on": []}


async def output_rate(client: EngineClient, streams: int, tokens: int, serial: str) -> float:
    """Output tokens a second of `streams` requests, from the first token of all to the last."""
    draw = random.Random(serial)
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    requests = [
        Request(
            id=f"{serial}-{n}",
            prompt=tuple(draw.randrange(LOWEST, HIGHEST) for _ in range(16)),
            params=params,
        )
        for n in range(streams)
    ]
    started: set[str] = set()
    begun, counted = 0.0, 0
    async with aclosing(client.generate(*requests)) as outputs:
        async for output in outputs:
            if output.error:
                raise SystemExit(output.error)
            if len(started) < streams:
                started.add(output.request_id)
                begun = time.perf_counter()
            else:
                counted += len(output.token_ids)
    return counted / (time.perf_counter() - begun)


async def run(asked: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {str(n): [] for n in asked.streams}
    model = asked.model or str(demo_model_path(Path("~/.cache/anychip").expanduser()))
    flags_of_all, builder = list(asked.flags), DEFAULT_BUILDER
    if asked.step_ms is not None:
        sys.path.insert(0, str(Path(__file__).parent / "idle"))  # the engine's process inherits it
        builder = "idle_device:build"
        flags_of_all += ["--chip-option", f"step_ms={asked.step_ms}"]
    async with AsyncExitStack() as stack:
        clients = {}
        for mode, flags in MODES.items():
            config = read_config(["--model-path", model, *flags, *flags_of_all])
            clients[mode] = EngineClient(config, builder=builder)
            stack.push_async_callback(clients[mode].close, 5.0)
            await clients[mode].start()
        for streams in asked.streams:
            for client in clients.values():  # sizes are prepared on first use
                await output_rate(client, streams, asked.tokens, f"warm-{streams}")
            for repeat in range(asked.repeats):
                order = list(MODES) if repeat % 2 else list(MODES)[::-1]
                pair = {
                    mode: await output_rate(
                        clients[mode], streams, asked.tokens, f"{streams}-{repeat}"
                    )
                    for mode in order
                }
                found[str(streams)].append(pair)
                print(f"{streams} streams, {repeat + 1}: {pair}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Print a Markdown table: medians, and the median of the ratios pair by pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="folder or .gguf [the demo model]")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--step-ms", type=float, help="a device that waits so long a step")
    parser.add_argument("--json", help="file for the figures of every pair")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="more for the engine")
    asked = parser.parse_args()
    if min(asked.repeats, asked.tokens, *asked.streams) < 1:
        parser.error("--repeats, --tokens and --streams: 1 or more")
    found = asyncio.run(run(asked))
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1))
    print(
        "| streams | off, tokens/s | on, tokens/s | on / off | least | most |\n" + "|---" * 6 + "|"
    )
    for streams, pairs in found.items():
        ratios = [pair["on"] / pair["off"] for pair in pairs]
        off, on = (statistics.median(pair[mode] for pair in pairs) for mode in MODES)
        print(
            f"| {streams} | {off:.1f} | {on:.1f} | {statistics.median(ratios):.3f} "
            f"| {min(ratios):.3f} | {max(ratios):.3f} |"
        )


if __name__ == "__main__":
    main()
