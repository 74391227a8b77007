"""`anychip conform`: proves that a chip keeps the contract; `conform diff` compares reports."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.chip_flags import add_chip_flags
from anychip.cli.output import say
from anychip.config import ConfigError, FlagParser, ServeConfig, own_values, parse
from anychip.flags import Flag, add_flags, declared
from anychip.signals import termination_as_interrupt

if TYPE_CHECKING:
    from anychip.conform.report import Report
    from anychip.conform.result import Result
    from anychip.conform.selection import Selection

_REPORT = "run and report"
FORMATS = (".json", ".md")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConformOptions:
    """How the kit runs, and how it tells what it saw."""

    check_timeout: float = declared(
        300.0,
        Flag(
            ("--check-timeout",),
            _REPORT,
            "seconds that one check may take; then it fails and the next is run",
            "SECONDS",
            low=1,
            high=86400,
        ),
    )
    verbose: bool = declared(False, Flag(("--verbose", "-v"), _REPORT, "print every result"))
    json: bool = declared(False, Flag(("--json",), _REPORT, "print the report as one JSON object"))
    output: str | None = declared(
        None, Flag(("--output",), _REPORT, "write the report there too: .json or .md", "FILE")
    )

    def __post_init__(self) -> None:
        """What cannot be obeyed is refused before anything is run."""
        if self.json and self.verbose:
            raise ConfigError("--verbose: --json prints every result already; leave one out")
        if self.output is None:
            return
        if Path(self.output).suffix not in FORMATS:
            raise ConfigError(f"--output: {self.output} must end in {' or '.join(FORMATS)}")
        if Path(self.output).is_dir():
            raise ConfigError(f"--output: {self.output} is a folder; name a file")
        if not Path(self.output).parent.is_dir():
            raise ConfigError(f"--output: {self.output}: there is no such folder; make it first")


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip conform",
        "Prove that a chip keeps the contract, check by check, in a process of its own: one that"
        " crashes or hangs costs that check alone. Levels: registration, build, memory, execution,"
        " operators, models; each needs the ones before it, whose gates (P1, D1, M2, X1) are always"
        " run. Exit code 1 where a check is FAIL or MISSING."
        " `anychip conform diff BEFORE.json AFTER.json` compares two reports."
        " What each id proves: docs/conformance.md.",
    )
    parser.show_examples(
        "anychip conform --backend CHIP --output report.json",
        "anychip conform --backend CHIP --level operators --only O1:rms_norm --verbose",
    )
    add_chip_flags(parser)
    chosen = parser.add_argument_group("checks")
    chosen.add_argument(
        "--level", action="append", metavar="LEVEL", help="run this level, repeatable [all]"
    )
    chosen.add_argument(
        "--only",
        action="append",
        metavar="ID[:SUBJECT]",
        help="run just this check, repeatable; * is anything: O1:rms_norm, 'M*', '*:linear'",
    )
    add_flags(parser, ConformOptions)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the kit, or compare two reports; 1 where the chip does not conform or became worse."""
    if list(argv[:1]) == ["diff"]:
        return _diff(argv[1:])
    config, namespace = parse(add_arguments(), argv)
    options = ConformOptions(**own_values(ConformOptions, namespace))
    from anychip.conform.chosen import check_backend
    from anychip.conform.selection import Selection, levels_of

    selection = Selection(levels_of(namespace.level or ()), tuple(namespace.only or ()))
    check_backend(config.backend)
    report = _prove(config, selection, options.check_timeout)
    _tell(report, options)
    if report.interrupted:
        print("anychip: interrupted: the checks behind these were not run", file=sys.stderr)
        return 130
    return 0 if report.ok else 1


def _prove(config: ServeConfig, selection: Selection, timeout_s: float) -> Report:
    """What was proved until the end or an interrupt. Raises KeyboardInterrupt before the first
    result."""
    from anychip.cli.progress import progress
    from anychip.conform.isolation import Isolated
    from anychip.conform.kit import run_checks
    from anychip.conform.report import report_of

    # After the imports: an interrupt that falls into one of those may be swallowed there.
    results: list[Result] = []
    interrupted = False
    with termination_as_interrupt(), Isolated(config, timeout_s) as prover:
        fingerprint = prover.fingerprint()
        try:
            with progress() as watcher:
                run_checks(prover, selection, watcher, results)
        except KeyboardInterrupt:
            if not results:
                raise
            interrupted = True
    return report_of(results, fingerprint, selection, interrupted=interrupted)


def _tell(report: Report, options: ConformOptions) -> None:
    from anychip.conform.proof import Status
    from anychip.conform.report import to_json
    from anychip.conform.report_text import to_text

    unwritten = "" if options.output is None else _write(Path(options.output), report)
    text = to_json(report) if options.json else to_text(report, verbose=options.verbose)
    say(text, end="")
    if unsure := len(report.rows(Status.INCONCLUSIVE)):
        text = "check proves" if unsure == 1 else "checks prove"
        print(f"anychip: {unsure} {text} nothing here: INCONCLUSIVE, see above", file=sys.stderr)
    if unwritten:
        raise ConfigError(unwritten)
    if options.output is not None:
        print(f"anychip: the report is in {options.output}", file=sys.stderr)


def _write(path: Path, report: Report) -> str:
    """Write the report; why it is not written, or empty: a long run must still be told."""
    from anychip.conform.report import to_json
    from anychip.conform.report_text import to_markdown

    text = to_markdown(report) if path.suffix == ".md" else to_json(report)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"--output: cannot write to {path}: {error.strerror}"
    return ""


def _diff(argv: Sequence[str]) -> int:
    arguments = _diff_arguments().parse_args(list(argv))
    from anychip.conform.diff import compare_reports, difference_text
    from anychip.conform.report import read_report

    found = compare_reports(read_report(arguments.before), read_report(arguments.after))
    if arguments.json:
        say(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        say(difference_text(found), end="")
    return 1 if found.worse else 0


def _diff_arguments() -> argparse.ArgumentParser:
    parser = FlagParser(
        "anychip conform diff",
        "Tell what changed between two reports of `anychip conform --output FILE.json`: facts of"
        " the fingerprint, checks whose status changed, errors that grew. Exit code 1 where"
        " something became worse.",
    )
    parser.usage = "anychip conform diff BEFORE.json AFTER.json [--json]"
    parser.add_argument("before", metavar="BEFORE.json", help="the earlier report")
    parser.add_argument("after", metavar="AFTER.json", help="the later report")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
