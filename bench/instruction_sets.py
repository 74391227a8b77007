"""The cpu chip's kernels against each other: the same model, one instruction set a process.

    .venv/bin/python bench/instruction_sets.py MODEL [--isa amx avx512bf16 ...] [--repeats 2]

Each runs alone, in turn (A B A B ...), so that a machine whose speed drifts drifts under all.
Greedy, fixed lengths: N streams of 64 tokens in and 64 out (output tokens a second, prefill
included), and the first token of one prompt of 4,096. `anychip chips -v` lists the sets (isa); one
that the processor lacks is refused.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from command_line import count, need, need_model

STREAMS = (1, 8, 32, 64)
LONG = 4096
FIGURES = (*(f"{n} streams, tok/s" for n in STREAMS), f"first token of {LONG:,}, s")


def measure(model: Path, isa: str) -> dict[str, float]:
    from anychip.config import ServeConfig
    from anychip.engine.offline import OfflineEngine
    from anychip.request import SamplingParams

    def seconds(prompts: list[list[int]], count: int) -> float:
        begun = time.monotonic()
        engine.generate(prompts, SamplingParams(max_tokens=count, temperature=0, ignore_eos=True))
        return time.monotonic() - begun

    config = ServeConfig(model_path=str(model), chip_option={"isa": isa}, max_total_tokens=16384)
    found: dict[str, float] = {}
    with OfflineEngine(config) as engine:
        for name, n in zip(FIGURES, STREAMS, strict=False):
            seconds([[2000 + i] * 64 for i in range(n)], 2)  # binds the programs of these sizes
            engine.engine.flush_cache()
            found[name] = n * 64 / seconds([[1000 + i] * 64 for i in range(n)], 64)
        long = [[(7 * turn + i) % 4000 + 1000 for i in range(LONG)] for turn in (1, 2)]
        found[FIGURES[-1]] = min(seconds([prompt], 1) for prompt in long)
    return found


def child(model: Path, isa: str) -> dict[str, float]:
    """One set in a process of its own. Raises SystemExit with what that process said last."""
    line = [sys.executable, __file__, str(model), "--one", isa]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise SystemExit(f"--isa {isa}: {said[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file or a folder of safetensors")
    parser.add_argument("--isa", nargs="+", default=["amx", "avx512bf16"], help="[amx avx512bf16]")
    parser.add_argument("--repeats", type=count, default=2, help="[2]")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.model, asked.one)))
        return 0
    need("anychip")
    need_model(asked.model)
    seen: dict[str, list[dict[str, float]]] = {isa: [] for isa in asked.isa}
    for turn in range(asked.repeats):
        for isa, runs in seen.items():
            print(f"repeat {turn + 1} of {asked.repeats}: {isa}", file=sys.stderr)
            runs.append(child(asked.model, isa))
    print("| figure | " + " | ".join(asked.isa) + " |")
    print("|---|" + "---|" * len(asked.isa))
    for figure in FIGURES:
        middle = [statistics.median(run[figure] for run in runs) for runs in seen.values()]
        print(f"| {figure} | " + " | ".join(f"{value:.3g}" for value in middle) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
