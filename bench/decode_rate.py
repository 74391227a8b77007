"""Decode rate of one stream on any chip: python bench/decode_rate.py BACKEND MODEL [DTYPE ...].

One prompt, 65 tokens, greedy; the time of the first token is taken off. For a simulated device the
rate says that the simulator is fit to serve, and nothing about a card.
"""

from __future__ import annotations

import sys
import time

from anychip.config import read_config
from anychip.engine.offline import OfflineEngine
from anychip.request import SamplingParams

TOKENS = 64


def main() -> None:
    backend, model, *dtypes = sys.argv[1:]
    for dtype in dtypes or ["auto"]:
        flags = ["--backend", backend, "--model-path", model, "--dtype", dtype]
        config = read_config([*flags, "--log-level", "error", "--context-length", "1024"])
        with OfflineEngine(config) as engine:
            seconds(engine, 4)  # programs of these sizes are made here
            rate = TOKENS / (seconds(engine, TOKENS + 1) - seconds(engine, 1))
        print(f"{backend} {dtype}: {rate:.1f} tokens/s")


def seconds(engine: OfflineEngine, tokens: int) -> float:
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    began = time.perf_counter()
    engine.generate(["The capital of France is"], params)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
