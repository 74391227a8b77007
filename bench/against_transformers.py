"""One stream and 32 streams: AnyChip against Hugging Face transformers in bfloat16, in one run.

    .venv/bin/python bench/against_transformers.py MODEL [--repeats 3] [--engines NAME ...]

Each engine runs in a process of its own, in turn (A B A B ...), so that a machine whose speed
drifts drifts under both. Greedy, fixed lengths, no prefix shared: the prompts are drawn anew.
  one: 128 tokens in, 128 out            32: 32 at once, 288 in, 96 out (a static batch)
Ratios are to "transformers bf16", where that is among the engines. It needs the test requirements
(torch, transformers, accelerate, and gguf for a GGUF file).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from command_line import count, need, need_model

PATIENCE = 1200
"""Seconds for one engine's run."""

WORK = {"one": (1, 128, 128), "32": (32, 288, 96)}
LOWEST, HIGHEST = 1000, 20000  # ordinary word pieces


def prompts(name: str, seed: int) -> list[list[int]]:
    count, length, _ = WORK[name]
    draw = random.Random(f"{name}-{seed}")
    return [[draw.randrange(LOWEST, HIGHEST) for _ in range(length)] for _ in range(count)]


def run_transformers(model: Path, seed: int) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM

    where = (model, None) if model.is_dir() else (model.parent, model.name)
    net = AutoModelForCausalLM.from_pretrained(
        where[0], gguf_file=where[1], dtype=torch.bfloat16
    ).eval()

    def generate(name: str, count: int) -> float:
        ids = torch.tensor(prompts(name, seed))
        began = time.perf_counter()
        with torch.inference_mode():
            net.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=count,
                max_new_tokens=count,
                pad_token_id=0,
            )
        return time.perf_counter() - began

    return measure(generate)


def run_anychip(model: Path, seed: int, dtype: str) -> dict[str, float]:
    from anychip.config import ServeConfig
    from anychip.engine.offline import OfflineEngine
    from anychip.request import SamplingParams

    config = ServeConfig(model_path=str(model), dtype=dtype, max_total_tokens=16384)
    with OfflineEngine(config) as engine:

        def generate(name: str, count: int) -> float:
            engine.engine.flush_cache()
            params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
            began = time.perf_counter()
            found = engine.generate(prompts(name, seed), params)
            seconds = time.perf_counter() - began
            if any(len(c.token_ids) != count for c in found):
                raise SystemExit(f"{name}: a request ended early: {[c.finish for c in found]}")
            return seconds

        return measure(generate)


def measure(generate: Callable[[str, int], float]) -> dict[str, float]:
    """Output tokens a second, and seconds to the first token of all, by workload."""
    generate("one", 8)
    found = {}
    for name, (streams, _, length) in WORK.items():
        found[f"{name}: first token, s"] = generate(name, 1)
        found[f"{name}: output, tok/s"] = streams * length / generate(name, length)
    return found


PEER = "transformers bf16"
ENGINES = {
    PEER: run_transformers,
    "anychip float32": lambda model, seed: run_anychip(model, seed, "float32"),
    "anychip bfloat16": lambda model, seed: run_anychip(model, seed, "bfloat16"),
}


def child(engine: str, model: Path, seed: int) -> dict[str, float]:
    """One engine in a process of its own. Raises SystemExit with the end of what it said."""
    command = [sys.executable, __file__, str(model), "--only", engine, "--seed", str(seed)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SystemExit(
            f"{engine}: no result within {PATIENCE:,} s; is the machine busy?"
        ) from error
    if done.returncode:
        raise SystemExit(f"{engine} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file or a folder of safetensors")
    parser.add_argument("--repeats", type=count, default=3, help="[3]")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--json", type=Path, help="a file for every figure of every run")
    parser.add_argument("--only", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps(ENGINES[asked.only](asked.model, asked.seed)))
        return
    need_model(asked.model)
    need("anychip")
    if PEER in asked.engines:
        reader = () if asked.model.is_dir() else ("gguf",)
        need("torch", "transformers", "accelerate", *reader, instead="leave it out by --engines")
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in asked.engines}
    for repeat in range(asked.repeats):
        for engine, results in runs.items():
            print(f"repeat {repeat + 1} of {asked.repeats}: {engine}", file=sys.stderr, flush=True)
            results.append(child(engine, asked.model, repeat))
    if asked.json:
        asked.json.write_text(json.dumps(runs, indent=1))
    print(table(runs))


def table(runs: dict[str, list[dict[str, float]]]) -> str:
    """Markdown: medians, and the median of the ratios to transformers, pair by pair, if it ran."""
    base = runs.get(PEER)
    rows = ["| figure | " + " | ".join(runs) + " |", "|---" * (len(runs) + 1) + "|"]
    for figure in next(iter(runs.values()))[0]:
        cells = []
        for engine, results in runs.items():
            cell = f"{statistics.median(r[figure] for r in results):.3g}"
            if base is not None and engine != PEER:
                pairs = zip(results, base, strict=True)
                cell += f" ({statistics.median(r[figure] / b[figure] for r, b in pairs):.2f} x)"
            cells.append(cell)
        rows.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
