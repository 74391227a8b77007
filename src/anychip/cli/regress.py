"""`anychip regress`: whether a chip's answers and speed got worse since they were last accepted."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.demo import with_demo_model
from anychip.cli.output import drawing, say
from anychip.config import ConfigError, FlagParser, own_values, parse, serve_parser
from anychip.flags import Flag, add_flags, declared
from anychip.settings import user_path
from anychip.signals import termination_as_interrupt

if TYPE_CHECKING:
    from anychip.bench.regress_cases import Cases
    from anychip.bench.regress_report import Report
    from anychip.config import ServeConfig

_GROUP = "regress"
OBEYED = ("chip", "files and logging")
"""Groups of settings that have a meaning here: the models and their sizes are the set's."""
WIDE = 200
"""Columns of a table that no terminal shows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressOptions:
    """What is run, what it is compared with, and where the report goes."""

    full: bool = declared(
        False,
        Flag(
            ("--full",),
            _GROUP,
            "every structure, format, length and way, and the demo model; else a small set",
        ),
    )
    cases: str | None = declared(
        None,
        Flag(("--cases",), _GROUP, "run the cases of this YAML file, see docs/regress.md", "FILE"),
    )
    list: bool = declared(
        False, Flag(("--list",), _GROUP, "print the names of the cases and run none")
    )
    dtype: str = declared(
        "auto",
        Flag(
            ("--dtype",),
            _GROUP,
            "compute type; auto: float32 for float32 models, else the chip's first",
            "TYPE",
            choices=("auto", "float32", "bfloat16", "float16"),
        ),
    )
    only: str | None = declared(
        None, Flag(("--only",), _GROUP, "cases that fit a pattern, such as 'llama-q8_0/*'", "GLOB")
    )
    baseline: str = declared(
        "bench/baselines",
        Flag(
            ("--baseline",),
            _GROUP,
            "folder of accepted figures, relative to the working directory",
            "DIR",
        ),
    )
    output: str | None = declared(
        None, Flag(("--output",), _GROUP, "folder for regress.md and regress.json [none]", "DIR")
    )
    update: bool = declared(
        False, Flag(("--update",), _GROUP, "accept these figures as the baseline, with --reason")
    )
    reason: str | None = declared(
        None, Flag(("--reason",), _GROUP, "why they changed; kept in the baseline", "TEXT")
    )
    speed_limit: float = declared(
        0.5,
        Flag(
            ("--speed-limit",),
            _GROUP,
            "least share of the baseline's speed, on the same fingerprint; 0: not judged",
            "SHARE",
            low=0,
            high=1,
        ),
    )
    repeats: int = declared(
        3,
        Flag(
            ("--repeats",),
            _GROUP,
            "timed runs of a case at least; 0: none, no speeds are told",
            low=0,
            high=1000,
        ),
    )

    verbose: bool = declared(
        False, Flag(("--verbose", "-v"), _GROUP, "print the figures of every case, not of models")
    )
    json: bool = declared(False, Flag(("--json",), _GROUP, "print one JSON object"))

    @property
    def set(self) -> str:
        """The cases' set."""
        return "full" if self.full else "small"

    def __post_init__(self) -> None:
        if self.json and self.verbose:
            raise ConfigError("--verbose: --json prints every case already; leave one out")
        if self.update and not self.reason:
            raise ConfigError("--update: say why the figures changed with --reason TEXT")
        if self.reason and not self.update:
            raise ConfigError("--reason: nothing is accepted; add --update or leave it out")


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip regress",
        "Run small models of every structure, format, length and way; compare logits and tokens"
        " with the oracle, and figures with those accepted before. Exit code 1 where something is"
        " worse.",
        OBEYED,
    )
    add_flags(parser, RegressOptions)
    parser.show_examples(
        "anychip regress --backend mychip --output out",
        "anychip regress --backend mychip --full --update --reason 'linear sums in blocks of 64'",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the table, write the report, accept it where asked to; progress on standard error."""
    config, namespace = parse(add_arguments(), argv)
    options = RegressOptions(**own_values(RegressOptions, namespace))
    level = config.log_level.upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s")
    cases = _cases(options)
    if options.list:
        for case in cases.chosen(options.set, options.only):
            say(case.key)
        return 0
    _check_writable(options)
    with termination_as_interrupt():
        report = _report(config, options, cases)
    if options.json:
        say(_as_json(report))
    else:
        _print(report, verbose=options.verbose)
    if options.output is not None:
        _write(user_path(options.output, "--output"), report)
    if options.update and options.reason:
        from anychip.bench.regress import accept

        path = accept(user_path(options.baseline, "--baseline"), report, options.reason)
        print(f"accepted: {path}", file=sys.stderr)
        return 0
    return 1 if report.worse else 0


def _check_writable(options: RegressOptions) -> None:
    """Before minutes of work, whether what comes of them can be kept. Raises ConfigError."""
    wanted = {
        "--output": options.output,
        "--baseline": options.baseline if options.update else None,
    }
    for flag, name in wanted.items():
        if name is None:
            continue
        folder = there = user_path(name, flag)
        while not there.exists() and there != there.parent:
            there = there.parent
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            raise ConfigError(f"{flag}: cannot write to {folder}: {there} is no folder to write to")


def _cases(options: RegressOptions) -> Cases:
    """What there is to run. Raises CasesError, ConfigError where that is nothing."""
    from anychip.bench.regress_case_files import package_cases, user_cases

    if options.cases is None:
        found = package_cases()
    else:
        found = user_cases(user_path(options.cases, "--cases"))
    if not found.chosen(options.set, options.only):
        pattern = "" if options.only is None else f" that fits {options.only!r}"
        flag = "--cases" if options.only is None else "--only"
        raise ConfigError(f"{flag}: there is no case of set {options.set}{pattern}; try --list")
    return found


def _report(config: ServeConfig, options: RegressOptions, cases: Cases) -> Report:
    from anychip.bench.regress import Question, regress
    from anychip.bench.regress_cases import DEMO
    from anychip.cli.regress_progress import progress

    chosen = cases.chosen(options.set, options.only)
    if any(cases.structures[case.structure].model == DEMO for case in chosen):
        config = with_demo_model(dataclasses.replace(config, model_path=None))
    with tempfile.TemporaryDirectory(prefix="anychip-regress-") as folder:
        asked = Question(
            config,
            cases,
            user_path(options.baseline, "--baseline"),
            Path(folder),
            set=options.set,
            only=options.only,
            speed_limit=options.speed_limit,
            repeats=options.repeats,
        )
        with progress() as watcher:
            return regress(asked, watcher)


def _as_json(report: Report) -> str:
    from anychip.bench.regress_report import as_json

    return msgspec.json.format(msgspec.json.encode(as_json(report)), indent=2).decode()


def _write(folder: Path, report: Report) -> None:
    from anychip.bench.regress_report import markdown

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "regress.md").write_text(markdown(report), encoding="utf-8")
        (folder / "regress.json").write_text(_as_json(report) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output: cannot write to {folder}: {error.strerror}") from error


def _print(report: Report, *, verbose: bool) -> None:
    from anychip.bench.regress_report import failures
    from anychip.cli.regress_table import draw

    with drawing(WIDE) as console:
        draw(console, report, verbose=verbose)
    for key, texts in failures(report).items():
        say("\n  ".join([f"{key} is worse:", *texts]))
    say(report.summary)
