"""`anychip tune`: which flags serve a trace best on a chip, measured one variable at a time."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anychip.cli.load_flags import LoadOptions, flag
from anychip.cli.local import with_model
from anychip.cli.output import drawing, say
from anychip.config import OFFLINE, ConfigError, FlagParser, own_values, parse, serve_parser
from anychip.flags import Flag, add_flags, declared
from anychip.settings import user_path

if TYPE_CHECKING:
    from anychip.bench.tune.kept import Comparison, Kept
    from anychip.bench.tune.plan import Pass
    from anychip.bench.tune.prepare import Prepared, Question
    from anychip.bench.tune.state import Done
    from anychip.config import ServeConfig

_GROUP = "tune"
_flag = functools.partial(flag, group=_GROUP)
WIDE = 200
"""Columns of a table that no terminal shows."""
OBJECTIVES = ("throughput", "ttft", "tpot", "goodput")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneOptions(LoadOptions):
    """What is varied, under which load, and where the table goes."""

    trace: str | None = declared(
        None,
        _flag("--trace", "requests to serve: a record, or Azure's, BurstGPT's, Mooncake's", "FILE"),
    )
    vary: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": _flag("--vary", "values of one more flag of serve, repeatable", "FLAG=A,B,C")
        },
    )
    repeats: int = declared(
        3, _flag("--repeats", "runs of each configuration; fewer: wider intervals", low=2, high=100)
    )
    objective: str = declared(
        "throughput",
        Flag(
            ("--objective",),
            _GROUP,
            "what is to become better; goodput: requests a second within --slo-ttft, --slo-tpot",
            "NAME",
            choices=OBJECTIVES,
        ),
    )
    output: str = declared(
        "anychip-tune",
        _flag("--output", "folder for tune.json, tune.md, tune.png, each run and log", "DIR"),
    )
    compare: str | None = declared(
        None,
        _flag("--compare", "tell what changed since that table; alone, of --output's", "DIR|FILE"),
    )
    resume: bool = declared(False, _flag("--resume", "go on with the runs that --output has"))
    force: bool = declared(
        False, _flag("--force", "tune although the doctor finds the chip not sound")
    )
    json: bool = declared(False, _flag("--json", "print one JSON object"))

    def __post_init__(self) -> None:
        if self.trace is None and self.compare is None:
            raise ConfigError("--trace: name the requests to serve, or a table with --compare")
        limits = self.slo_ttft is not None or self.slo_tpot is not None
        if self.objective == "goodput" and not limits:
            raise ConfigError(
                "--objective: goodput has no meaning without limits; add --slo-ttft or --slo-tpot"
            )


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip tune",
        "Find the flags that serve a trace best on this chip. From the memory to the requests that"
        " fit at once, then one variable at a time, each run on a server of its own, then the best"
        " of each together; flags of serve describe the base. Ctrl-C keeps what was measured.",
        OFFLINE,
    )
    add_flags(parser, TuneOptions)
    parser.show_examples(
        "anychip tune --model-path M --backend CHIP --trace record.jsonl --output tuned",
        "anychip tune --trace azure.csv --requests 100 --max-input 400 --max-output 50 --speed 4",
        "anychip tune --trace record.jsonl --vary page-size=16,64 --objective ttft --repeats 5",
        "anychip tune --output tuned --compare tuned-before",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Measure, print the tables and the recommendation; 130 where it was interrupted."""
    config, namespace = parse(add_arguments(), argv)
    options = TuneOptions(**own_values(TuneOptions, namespace))
    from anychip.bench.load.calls import LoadError

    output = user_path(options.output, "--output")
    try:
        if options.trace is None:
            from anychip.bench.tune.kept import load

            _tell(load(output), _compared(options, load(output)), options)
            return 0
        return _tuned(_question(config, options, output), options)
    except LoadError as error:
        raise ConfigError(str(error)) from error


def _question(config: ServeConfig, options: TuneOptions, output: Path) -> Question:
    from anychip.bench.load.traces import read_trace
    from anychip.bench.tune.prepare import Question

    file = user_path(str(options.trace), "--trace")
    return Question(
        config=config,
        local=config,
        file=file,
        trace=read_trace(file, options.requests),
        output=output,
        vary=options.vary,
        speed=options.speed,
        scaling=options.scaling(),
        repeats=options.repeats,
        objective=options.objective,
        slo=options.slo(),
        resume=options.resume,
        force=options.force,
    )


def _tuned(asked: Question, options: TuneOptions) -> int:
    """Everything that measures; what can be refused is refused before that."""
    from anychip.bench.tune import measure, plot
    from anychip.bench.tune.kept import load
    from anychip.bench.tune.prepare import prepare
    from anychip.bench.tune.state import check_folder
    from anychip.bench.tune.tune import tune
    from anychip.bench.tune.varying import NO_TENSOR_PARALLEL, asked_values

    measure.check()
    plot.check()
    check_folder(asked.output, resume=asked.resume)
    asked_values(asked.vary, asked.config)
    if options.compare is not None:
        load(user_path(options.compare, "--compare"))
    _say(NO_TENSOR_PARALLEL)
    prepared = prepare(dataclasses.replace(asked, local=with_model(asked.config)), _say)
    try:
        kept = tune(prepared, Progress())
    except KeyboardInterrupt:
        return _interrupted(prepared, options)
    _tell(kept, _compared(options, kept), options)
    _write(kept, _compared(options, kept), asked.output)
    return 0


def _interrupted(prepared: Prepared, options: TuneOptions) -> int:
    """What is there is kept: told, and how to go on."""
    from anychip.bench.tune.tune import so_far

    kept = so_far(prepared)
    if kept is not None:
        _tell(kept, None, options)
    _say(f"interrupted: the runs so far are in {prepared.asked.output}; add --resume to go on")
    return 130


def _compared(options: TuneOptions, kept: Kept) -> Comparison | None:
    if options.compare is None:
        return None
    from anychip.bench.tune.kept import compare, load

    return compare(load(user_path(options.compare, "--compare")), kept)


def _write(kept: Kept, found: Comparison | None, folder: Path) -> None:
    from anychip.bench.tune.kept import save
    from anychip.bench.tune.plot import draw
    from anychip.bench.tune.table import markdown

    try:
        save(kept, folder)
        (folder / "tune.md").write_text(markdown(kept, found), encoding="utf-8")
        draw(kept, folder / "tune.png")
    except OSError as error:
        raise ConfigError(f"--output: cannot write to {folder}: {error.strerror}") from error


def _tell(kept: Kept, found: Comparison | None, options: TuneOptions) -> None:
    import msgspec

    from anychip.bench.tune.table import (
        COMPARED,
        STAGES,
        TITLES,
        closing,
        columns,
        compared_head,
        compared_rows,
        head,
        rows,
    )

    if options.json:
        whole = {"table": kept, "compared": found}
        say(msgspec.json.format(msgspec.json.encode(whole), indent=1).decode())
        return
    say("\n".join(head(kept)))
    for stage in STAGES:
        if lines := rows(kept, stage):
            _draw(TITLES[stage], columns(kept), lines)
    say("\n".join(closing(kept)))
    if found is not None:
        say("\n".join(["", *compared_head(found)]))
        _draw("what changed", COMPARED, compared_rows(found))


def _draw(title: str, names: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*names, box=box.SIMPLE_HEAD, title=title, pad_edge=False)
    for cells in lines:
        table.add_row(*(Text(cell) for cell in cells))
    with drawing(WIDE) as console:
        console.print(table)


def _say(text: str) -> None:
    print(f"anychip: {text}", file=sys.stderr, flush=True)


class Progress:
    """Lines on standard error: which run, how long yet, what came out."""

    def begins(self, stage: Pass, number: int, of: int, name: str, left: float | None) -> None:
        """With the time that is left, from runs that were made."""
        rest = "" if left is None else f", {_duration(left)} left"
        more = " at least" if stage == "one by one" else ""
        _say(f"run {number} of {of}{more}{rest}: {name}")

    def ended(self, done: Done) -> None:
        """Its figures."""
        found = done.measured
        if found is None:
            _say(f"  could not run: {done.broken}")
            return
        lost = f", {found.failed} calls failed ({found.failure})" if found.failed else ""
        ttft, tpot = _ms(found.ttft_s), _ms(found.tpot_s)
        _say(f"  {found.throughput:,.4g} tokens/s, TTFT {ttft}, TPOT {tpot}{lost}")


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:,.4g} ms"


def _duration(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"about {whole} s" if whole < 120 else f"about {math.ceil(whole / 60)} min"
