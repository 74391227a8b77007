"""What structured output costs and what forced tokens save: free, masked, masked with jumps.

    .venv/bin/python bench/structured_output.py [MODEL] [--streams 1 8] [--repeats 5]

One engine a setting in this process, asked in turn. Greedy answers to one schema, so that every
setting writes the same document; "free" writes as many tokens without a grammar. Times are of
the whole batch without its first step. A ratio is of one round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from anychip.config import read_config
from anychip.engine.offline import OfflineEngine
from anychip.model.demo import demo_model_path
from anychip.request import FinishReason, GrammarSpec, Request, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "customer_name": {"type": "string", "maxLength": 24},
        "shipping_address": {
            "type": "object",
            "properties": {
                "street_and_number": {"type": "string", "maxLength": 24},
                "postal_code": {"type": "string", "pattern": "^[0-9]{5}$"},
                "country": {"enum": ["Germany", "France", "Italy"]},
            },
            "required": ["street_and_number", "postal_code", "country"],
            "additionalProperties": False,
        },
        "is_express_delivery": {"type": "boolean"},
        "number_of_parcels": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": [
        "customer_name",
        "shipping_address",
        "is_express_delivery",
        "number_of_parcels",
    ],
    "additionalProperties": False,
}
SPEC = GrammarSpec("json_schema", json.dumps(SCHEMA), any_whitespace=False)
PROMPT = "Invent an order and write it as JSON."
MODES = {"free": [], "masked": ["--disable-jump-forward"], "jumps": []}


def answers(offline: OfflineEngine, grammar: GrammarSpec | None, count: int, length: int) -> dict:
    """Run `count` equal requests at once. length: tokens at most. Seconds, steps, tokens."""
    prompt = tuple(offline.tokenizer.encode(PROMPT))
    params = SamplingParams(
        max_tokens=length, temperature=0.0, grammar=grammar, ignore_eos=grammar is None
    )
    engine = offline.engine
    begun, tokens, steps = 0.0, 0, engine.stats().steps
    names = {f"{time.perf_counter()}-{n}" for n in range(count)}
    for name in names:
        engine.submit(Request(id=name, prompt=prompt, params=params, namespace=name))
    while names:
        for output in engine.step():
            if output.finish is FinishReason.ERROR:
                raise SystemExit(output.error)
            tokens += len(output.token_ids) if begun else 0
            if output.finish is not None:
                names.discard(output.request_id)
            elif output.token_ids and not begun:
                begun = time.perf_counter()
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "steps": engine.stats().steps - steps, "tokens": tokens}


def run(asked: argparse.Namespace) -> dict[int, list[dict[str, dict]]]:
    """Rounds by number of streams."""
    model = asked.model or str(demo_model_path(Path("~/.cache/anychip").expanduser()))
    found: dict[int, list[dict[str, dict]]] = {}
    with ExitStack() as stack:
        engines = {
            mode: stack.enter_context(OfflineEngine(read_config(["--model-path", model, *flags])))
            for mode, flags in MODES.items()
        }
        for streams in asked.streams:
            most = 200
            for number in range(asked.repeats + 1):  # the first prepares sizes and is not counted
                order = list(MODES)[:: -1 if number % 2 else 1]
                round_ = {}
                for mode in ["masked", *(m for m in order if m != "masked")]:
                    grammar = None if mode == "free" else SPEC
                    length = round_["masked"]["tokens"] // streams if mode == "free" else most
                    round_[mode] = answers(engines[mode], grammar, streams, length)
                if number:
                    found.setdefault(streams, []).append(round_)
                    print(f"{streams} streams, {number}: {round_}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Print a Markdown table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="folder or .gguf [the demo model]")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    if min(asked.repeats, *asked.streams) < 1:
        parser.error("--repeats and --streams: 1 or more")
    print("| streams | setting | tokens/s | steps | rate, of free |\n" + "|---" * 5 + "|")
    for streams, rounds in run(asked).items():
        for mode in MODES:
            rate = statistics.median(r[mode]["tokens"] / r[mode]["seconds"] for r in rounds)
            steps = statistics.median(r[mode]["steps"] for r in rounds)
            ratio = statistics.median(
                (r["free"]["seconds"] / r["free"]["tokens"])
                / (r[mode]["seconds"] / r[mode]["tokens"])
                for r in rounds
            )
            print(f"| {streams} | {mode} | {rate:.0f} | {steps:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
