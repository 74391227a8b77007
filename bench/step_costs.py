"""What one step of the engine costs, part by part, against the limits of this machine.

    .venv/bin/python bench/step_costs.py MODEL [MODEL ...] --out DIR [--backend NAME] [--batches …]
        [--quantization NAME]

MODEL: a GGUF file or a folder of safetensors. Prompts are random token ids, and no prefix is found
again. OUT gets steps.json (all numbers, kept behind every model), steps.md, decode_batch.png,
decode_context.png and, of several models, models.png. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from functools import partial
from pathlib import Path

from command_line import count, lacking
from costs.limits import Limit, Rates, decode_step, measured, prefill_step
from costs.plots import INSTALL, draw
from costs.report import report
from costs.results import FILE, Measured, Point, Results, names_of, work_step, write
from costs.steps import Cost, Stepper, Unsteady, cache_needed, positions_needed, stepper
from race.measure import say
from race.roofline import Work, work_of

from anychip.config import ConfigError, ServeConfig, read_config
from anychip.engine.build import REFUSALS
from anychip.engine.loaded import LoadedModel
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.schedule.scheduler import RequestRefused
from anychip.settings.model import MADE_AT_LOAD

BATCHES, CONTEXTS, PREFILLS, STEPS = (
    (1, 2, 4, 8, 16, 32, 64),
    (64, 1024, 4096),
    (128, 512, 4096),
    12,
)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("models", type=Path, nargs="+", metavar="MODEL")
    add("--out", type=Path, required=True, help="a folder that holds no results yet")
    add("--backend", default=ServeConfig().backend, help="chip to run on [%(default)s]")
    made = "linears of every model are made so at load"
    add("--quantization", choices=MADE_AT_LOAD, metavar="NAME", help=made)
    many = partial(add, type=count, nargs="+", metavar="N")
    many("--batches", default=BATCHES, help="sequences of a decode step [1 to 64]")
    many("--contexts", default=CONTEXTS, help="positions of each [64 1024 4096]")
    many("--prefills", default=PREFILLS, help="tokens of a prompt [128 512 4096]")
    add("--steps", type=count, default=STEPS, help="decode steps of which the median counts [12]")
    return parser.parse_args()


def checked(asked: argparse.Namespace, path: Path) -> Work:
    """The model's work. Raises SystemExit where the model, or a size for it, is of no use."""
    try:
        checkpoint = open_checkpoint(path)
        most = checkpoint.config.context_length
        checkpoint.close()
        work = work_of(path, asked.quantization)
    except (CheckpointError, OSError) as error:
        raise SystemExit(str(error)) from error
    for context in asked.contexts:
        needed = positions_needed(context, max(asked.batches), asked.steps)
        if needed > most:
            raise SystemExit(
                f"--contexts {context}: with the steps that are measured that is up to {needed} "
                f"positions, the context of {path} is {most}; ask for less"
            )
    for tokens in asked.prefills:
        if tokens >= most:
            raise SystemExit(f"--prefills {tokens}: the context of {path} is {most}; ask for less")
    return work


def configured(asked: argparse.Namespace, path: Path) -> ServeConfig:
    """An engine that takes every prompt in one step, with a cache for the largest batch."""
    chunk = str(max(*asked.contexts, *asked.prefills))
    batch = max(asked.batches)
    needs = [cache_needed(context, batch, asked.steps) for context in asked.contexts]
    needs += [cache_needed(tokens, 1, 1) for tokens in asked.prefills]
    flags = {
        "--backend": asked.backend,
        "--model-path": str(path),
        "--log-level": "error",
        "--max-running-requests": str(batch),
        "--max-total-tokens": str(max(needs)),
        "--chunked-prefill-size": chunk,
        "--max-prefill-tokens": chunk,
    }
    if asked.quantization:
        flags["--quantization"] = asked.quantization
    words = [word for flag in flags.items() for word in flag]
    return read_config([*words, "--disable-radix-cache"])


class Bench:
    """One model: its engine, its limits."""

    def __init__(self, asked: argparse.Namespace, name: str, path: Path, work: Work) -> None:
        self._asked, self._path, self._work = asked, path, work
        self._name, self._element = name, 0
        self.rates: Rates | None = None

    def measure(self, known: Rates | None) -> Measured:
        """known: rates of the machine so far. Raises REFUSALS, RequestRefused, Unsteady."""
        config = configured(self._asked, self._path)
        with LoadedModel(config) as model:
            plan, chip = model.opened.plan, model.opened.chip
            self._element = plan.group.dtype.itemsize
            if chip.memory.unified:
                self.rates = self._rates(known)
            facts = chip.capabilities().facts
            dtypes = (str(plan.dtype), str(plan.group.dtype))
            found = Measured(self._name, self._work, *dtypes, facts)
            with stepper(model, config) as steps:
                self._decodes(steps, found)
                self._prefills(steps, found, model.opened.chunk)
        return found

    def _rates(self, known: Rates | None) -> Rates:
        say("measuring the machine's rates")
        asked, element = self._asked, self._element
        sizes = [(batch, context) for batch in asked.batches for context in asked.contexts]
        steps = [decode_step(self._work, b, b * context, element) for b, context in sizes]
        steps += [prefill_step(self._work, tokens, element) for tokens in asked.prefills]
        return measured(steps, known)

    def _decodes(self, steps: Stepper, found: Measured) -> None:
        for context in sorted(set(self._asked.contexts)):
            needed = {b: cache_needed(context, b, self._asked.steps) for b in self._asked.batches}
            fitting = [batch for batch in needed if needed[batch] <= steps.cache_tokens]
            for batch in sorted(set(needed) - set(fitting)):
                found.skipped.append(
                    f"decode of batch {batch}, context {context}: it takes {needed[batch]:,} "
                    f"positions of the cache, memory is left for {steps.cache_tokens:,}"
                )
            for cost in steps.decodes(context, fitting, self._asked.steps):
                self._keep(found, cost)

    def _prefills(self, steps: Stepper, found: Measured, chunk: int) -> None:
        for tokens in sorted(set(self._asked.prefills)):
            if tokens > min(chunk, steps.cache_tokens):
                found.skipped.append(
                    f"prefill of {tokens} tokens: a step of this engine takes {chunk} at most, "
                    f"its cache {steps.cache_tokens:,}"
                )
                continue
            self._keep(found, steps.prefill(tokens))

    def _keep(self, found: Measured, cost: Cost) -> None:
        say(
            f"  {cost.kind}, batch {cost.batch}, context {cost.context}: {cost.step * 1e3:.3f} ms "
            f"({cost.python_share:.0%} Python)"
        )
        found.points.append(Point(cost, self._limit(cost)))

    def _limit(self, cost: Cost) -> Limit | None:
        if self.rates is None:
            return None
        return self.rates.limit(work_step(self._work, cost, self._element))


def measure_all(asked: argparse.Namespace) -> Results:
    """Every model, kept behind each. Raises SystemExit with a clear text."""
    works = [checked(asked, path) for path in asked.models]
    if len(set(asked.models)) < len(asked.models):
        raise SystemExit("a model is named twice")
    try:
        asked.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"--out {asked.out}: {error.strerror}") from error
    if (asked.out / FILE).exists():
        raise SystemExit(f"{asked.out} has results already: give another --out")
    shown = {name: value for name, value in vars(asked).items() if name not in ("models", "out")}
    results = Results(datetime.datetime.now().astimezone().isoformat(timespec="seconds"), shown)
    for name, path, work in zip(names_of(asked.models), asked.models, works, strict=True):
        name += f" in {asked.quantization}" if asked.quantization else ""
        say(name)
        bench = Bench(asked, name, path, work)
        try:
            results.models.append(bench.measure(results.rates))
        except (*REFUSALS, ConfigError, RequestRefused, Unsteady) as error:
            raise SystemExit(f"{name}: {error}") from error
        except (subprocess.SubprocessError, OSError) as error:
            raise SystemExit(f"{name}: {error}") from error
        results.rates = bench.rates or results.rates
        write(results, asked.out)
    return results


def main() -> int:
    """Measure, report, draw."""
    asked = arguments()
    asked.models = [path.expanduser().absolute() for path in asked.models]
    if lacking("matplotlib"):
        say(INSTALL)
    results = measure_all(asked)
    text = report(results)
    (asked.out / "steps.md").write_text(text, encoding="utf-8")
    print(text)
    try:
        for path in draw(results, asked.out):
            say(f"drew {path}")
    except ModuleNotFoundError as error:
        say(f"NO PLOTS: {error}; {INSTALL}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
