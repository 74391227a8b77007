"""`anychip doctor`: what is sound about a chip and a model on it, what is not, what to do next."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.local import with_model
from anychip.cli.output import drawing, say
from anychip.config import CHECKED, FlagParser, ServeConfig, own_values, parse, serve_parser
from anychip.flags import Flag, add_flags, declared

if TYPE_CHECKING:
    from anychip.contract.build import Finding

WIDE = 160
"""Columns of lines that no terminal shows."""

_COLOURS = {"good": "green", "unknown": "yellow", "bad": "red"}
_NAME_COLUMNS, _LEAST_COLUMNS = 16, 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """How the looks are taken and told."""

    check_timeout: float = declared(
        600.0,
        Flag(
            ("--check-timeout",),
            "doctor",
            "seconds that the steps of --check-ops may take in their process; then they are red",
            "SECONDS",
            low=1,
            high=86400,
        ),
    )
    json: bool = declared(False, Flag(("--json",), "doctor", "print one JSON list, at the end"))


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip doctor",
        "Look a chip over; with --model-path the model on it too; with --check-ops compare the"
        " operators of a prefill and two decode steps with the oracle (of the demo model where"
        " none is named), in a process of their own. Exit code 1 where something is red.",
        CHECKED,
    )
    parser.show_examples(
        "anychip doctor --backend CHIP",
        "anychip doctor --backend CHIP --check-ops --model-path DIR_OR_GGUF",
    )
    add_flags(parser, DoctorOptions)
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the findings as they are made; 1 where one is bad."""
    config, namespace = parse(add_arguments(), argv)
    options = DoctorOptions(**own_values(DoctorOptions, namespace))
    if config.check_ops or config.model_path is not None:
        config = with_model(config)
    if config.check_ops:
        limit = f"at most {options.check_timeout:g} s (--check-timeout)"
        print(f"anychip: checked steps run in a process of their own, {limit}", file=sys.stderr)
    from anychip.contract.build import Verdict
    from anychip.engine.doctor import doctor

    found = []
    model = config.model_path is not None
    for finding in doctor(config, model=model, timeout_s=options.check_timeout):
        found.append(finding)
        if not options.json:
            draw(finding)
    if options.json:
        say(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        say(_closing(found, config))
    return 1 if any(finding.verdict is Verdict.BAD for finding in found) else 0


def draw(finding: Finding) -> None:
    """Print one finding at once: colour, name, text, next step."""
    from rich.text import Text

    with drawing(WIDE) as console:
        colour = _COLOURS[finding.verdict.value]
        for number, line in enumerate(_lines(finding, console.width)):
            first = number == 0
            text = Text("│ ").append(f"{colour if first else '':6}", colour)
            text.append(f" │ {finding.name if first else '':{_NAME_COLUMNS}} │ {line}")
            console.print(text, soft_wrap=True)


def _lines(finding: Finding, columns: int) -> Iterator[str]:
    """The text, wrapped, and the next step in one line, so that it can be copied as it is."""
    room = max(columns - len("│ yellow │  │ ") - _NAME_COLUMNS, _LEAST_COLUMNS)
    for line in finding.text.splitlines() or [""]:
        yield from textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]
    if finding.step:
        yield f"next: {finding.step}"


def _closing(found: Sequence[Finding], config: ServeConfig) -> str:
    """What it all comes to, and the next step where nothing is red."""
    from anychip.run.doctor import conform_step

    counts = Counter(_COLOURS[finding.verdict.value] for finding in found)
    if counts["red"]:
        return f"red: {counts['red']}, yellow: {counts['yellow']}; take the first red one's step"
    text = f"nothing is red, {counts['yellow']} yellow" if counts["yellow"] else "nothing is wrong"
    if not config.check_ops:
        missing = "step of a model was run" if config.model_path else "operator of a model was run"
        text += f"; no {missing} (add {'--check-ops' if config.model_path else '--model-path'})"
    return f"{text}; next: {conform_step(config)}"
