"""What Python costs in a decode step: times with hot and cold caches, counts, and a profile.

    .venv/bin/python bench/python_step.py MODEL [MODEL ...] --out DIR [--batches 1 64] [--turns 40]

MODEL: a GGUF file or a folder of safetensors. OUT gets python_step.json, python_step.md and
python_step.png. The counts are the same on every machine; the times want one on which nothing else
runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from command_line import count, lacking
from costs.plots import INSTALL
from costs.results import names_of
from costs.steps import Unsteady
from costs.turn_report import Measured, draw, report
from costs.turns import Eviction, turns_of
from race.measure import say

from anychip.config import ConfigError, ServeConfig, read_config
from anychip.engine.build import REFUSALS
from anychip.engine.loaded import LoadedModel
from anychip.schedule.scheduler import RequestRefused

FILE = "python_step.json"


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("models", type=Path, nargs="+", metavar="MODEL")
    add("--out", type=Path, required=True, help="a folder that holds no results yet")
    add("--backend", default=ServeConfig().backend, help="chip to run on [%(default)s]")
    add("--batches", type=count, nargs="+", default=(1, 64), metavar="N", help="rows [1 64]")
    add("--context", type=count, default=264, help="tokens of each prompt [%(default)s]")
    add("--turns", type=count, default=40, help="of which the median counts [%(default)s]")
    add("--evict-mib", type=count, default=64, help="read to make caches cold [%(default)s]")
    return parser.parse_args()


def measure(asked: argparse.Namespace, name: str, path: Path) -> list[Measured]:
    """One model at each batch."""
    words = ["--model-path", str(path), "--backend", asked.backend]
    evict = Eviction(asked.evict_mib << 20).read_all
    found = []
    with LoadedModel(read_config(words)) as model:
        for batch in asked.batches:
            with turns_of(model, batch, asked.context) as turns:
                hot, cold = turns.timed(asked.turns, None), turns.timed(asked.turns, evict)
                spent, counts = turns.profiled(asked.turns, evict), turns.counted()
                gap = turns.overlapped(asked.turns, evict)
                found.append(Measured(name, batch, hot, cold, gap, counts, spent))
            say(
                f"{name}, batch {batch}: {hot.python * 1e6:.0f} µs, cold {cold.python * 1e6:.0f}; "
                f"{found[-1].counts.bytecodes:,} bytecodes"
            )
    return found


def main() -> int:
    """Measure, report, draw."""
    asked = arguments()
    paths = [path.expanduser().absolute() for path in asked.models]
    if lacking("matplotlib"):
        say(INSTALL)
    try:
        asked.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"--out {asked.out}: {error.strerror}") from error
    if (asked.out / FILE).exists():
        raise SystemExit(f"{asked.out} has results already: give another --out")
    found: list[Measured] = []
    for name, path in zip(names_of(paths), paths, strict=True):
        try:
            found += measure(asked, name, path)
        except (*REFUSALS, ConfigError, RequestRefused, Unsteady) as error:
            raise SystemExit(f"{name}: {error}") from error
    text = json.dumps([asdict(one) for one in found], indent=1)
    (asked.out / FILE).write_text(text + "\n", encoding="utf-8")
    text = report(found, asked.evict_mib)
    (asked.out / "python_step.md").write_text(text, encoding="utf-8")
    print(text)
    try:
        draw(found, asked.out / "python_step.png")
    except ModuleNotFoundError as error:
        say(f"NO PLOT: {error}; {INSTALL}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
