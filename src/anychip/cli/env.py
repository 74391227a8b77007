"""`anychip env CHIP`: the variables that a chip's vendor SDK needs, for a shell to read."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.build_layer import FLAGS, build_layer, chip_named, told_options
from anychip.cli.chip_flags import add_chip_flags
from anychip.cli.output import say
from anychip.config import FlagParser, parse

if TYPE_CHECKING:
    from anychip.contract.build import Build

LISTS = ("LD_LIBRARY_PATH", "LIBRARY_PATH", "PATH", "CPATH", "PYTHONPATH")
"""Variables with colons between their parts: what a chip names goes in front of what is there."""


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip env",
        "Print what a shell needs before programs of a chip's vendor SDK find each other, as export"
        f" lines. In {', '.join(LISTS)} they go in front of what is there. AnyChip itself finds the"
        " SDK without. Exit code 1 where no SDK is found.",
    )
    parser.usage = f"{parser.prog} CHIP [FLAG ...]"
    parser.show_examples("anychip env CHIP > env.sh && . ./env.sh", "anychip env CHIP --json")
    parser.add_argument("chip", metavar="CHIP", help="see `anychip chips`")
    add_chip_flags(parser, FLAGS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the variables; 1 where the chip needs some and finds nothing for them."""
    config, namespace = parse(add_arguments(), argv)
    config = dataclasses.replace(config, backend=namespace.chip)
    cls = chip_named(config.backend)
    from anychip.contract.layer import empty_slots

    with build_layer(cls, config) as build:
        needs = "environment" not in empty_slots(type(build))
        variables = dict(build.environment()) if needs else {}
        comments = [*told_options(cls, config), *_places(build)] if needs else []
    if namespace.json:
        say(msgspec.json.format(msgspec.json.encode(variables), indent=2).decode())
    elif needs:
        say("\n".join(_lines(cls.name, variables, comments)))
    else:
        say(f"# {cls.name}: nothing is needed in the environment")
    if needs and not variables:
        print(
            f"anychip: no SDK of {cls.name} is found; see anychip build {cls.name}", file=sys.stderr
        )
    return 1 if needs and not variables else 0


def _places(build: Build) -> Iterator[str]:
    for library in build.requires():
        if not library.header:
            yield f"{library.name} ({library.package}): {library.path or 'not found'}"


def _lines(chip: str, variables: Mapping[str, str], comments: Sequence[str]) -> Iterator[str]:
    yield f"# For programs of the SDK that anychip uses for {chip}; made by: anychip env {chip}"
    for comment in comments:
        yield f"# {_one_line(comment)}"
    for name, value in variables.items():
        behind = f'"${{{name}:+:${name}}}"' if name in LISTS else ""
        yield f"export {name}={shlex.quote(value)}{behind}"


def _one_line(text: str) -> str:
    """A line break in a path would end the comment, and what follows would be run."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
