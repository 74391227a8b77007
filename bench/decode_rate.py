"""Decode rate of one stream on any chip.

    .venv/bin/python bench/decode_rate.py BACKEND MODEL [DTYPE ...]

One prompt, 65 tokens, greedy; the time of the first token is taken off. For a simulated device the
rate says that the simulator is fit to serve, and nothing about a card.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from command_line import need, need_model

if TYPE_CHECKING:
    from anychip.engine.offline import OfflineEngine

TOKENS = 64
CONTEXT = 1024
"""Positions that the engine makes room for."""


def main() -> None:
    """A line for each dtype. Raises what the engine raises where the chip cannot serve it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", metavar="BACKEND", help="a chip of `anychip chips`")
    parser.add_argument("model", type=Path, metavar="MODEL", help="a GGUF file or a folder")
    parser.add_argument("dtypes", nargs="*", metavar="DTYPE", help="bfloat16, float16 … [auto]")
    asked = parser.parse_args()
    need("anychip")
    need_model(asked.model)
    for dtype in asked.dtypes or ["auto"]:
        print(f"{asked.backend} {dtype}: {rate(asked, dtype):.1f} tokens/s", flush=True)


def rate(asked: argparse.Namespace, dtype: str) -> float:
    """Tokens a second behind the first. Raises SystemExit where this cannot be served."""
    from anychip.config import ConfigError, read_config
    from anychip.engine.build import StartError
    from anychip.engine.offline import OfflineEngine

    flags = ["--backend", asked.backend, "--model-path", str(asked.model), "--dtype", dtype]
    try:
        config = read_config([*flags, "--log-level", "error", "--context-length", str(CONTEXT)])
        with OfflineEngine(config) as engine:
            seconds(engine, 4)  # programs of these sizes are made here
            return TOKENS / (seconds(engine, TOKENS + 1) - seconds(engine, 1))
    except (ConfigError, StartError) as error:
        raise SystemExit(str(error)) from error


def seconds(engine: OfflineEngine, tokens: int) -> float:
    """Of one prompt continued by so many tokens."""
    from anychip.request import SamplingParams

    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    began = time.perf_counter()
    engine.generate(["The capital of France is"], params)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
