"""`anychip new-chip NAME`: writes an installable package for a chip of one's own."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from anychip.cli.output import say
from anychip.config import ConfigError, FlagParser
from anychip.settings import user_path

TEMPLATE = Path(__file__).parents[1] / "templates" / "new_chip"
"""Files that end in .in; NAME in a path, and $words in a text, are filled in."""

LONGEST_NAME, LONGEST_VENDOR = 20, 40
"""Beyond these, lines of the written files would grow over 100 columns."""

NEXT = """
next:
  pip install -e {folder}
  anychip chips -v
  anychip conform --backend {name} --level memory
  anychip generate --backend {name} --prompt "The capital of France is"
then README.md in that folder, and docs/new_chip.md of AnyChip"""


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip new-chip",
        "Write an installable package for a chip of your own: the four files of the contract, C"
        " kernels that build, tests that run the conformance kit. It serves a model at once, on"
        " the host; then put your own calls in, one at a time.",
    )
    parser.usage = f"{parser.prog} NAME [FLAG ...]"
    parser.add_argument("name", metavar="NAME", help="what --backend will say")
    parser.add_argument("--into", metavar="DIR", default=".", help="write DIR/NAME [.]")
    parser.add_argument("--vendor", metavar="TEXT", help="who makes the chip [NAME]")
    return parser


def run(argv: Sequence[str]) -> int:
    """Write the package, then tell what is there and what comes next."""
    arguments = add_arguments().parse_args(list(argv))
    name, vendor = arguments.name, arguments.vendor
    _check_name(name)
    folder = user_path(arguments.into, "--into") / name
    files = written_files(name, name if vendor is None else vendor)
    _write(folder, files)
    say(f"{folder}/")
    for path in files:
        say(f"  {path}")
    say(NEXT.format(folder=folder, name=name))
    return 0


def written_files(name: str, vendor: str) -> dict[str, str]:
    """Path -> text of every file of the package, in the order of its tree.

    name: a name that `_check_name` lets through. Raises ConfigError where `vendor` is empty, too
    long or cannot stand in a string as it is.
    """
    if not re.fullmatch(r'[^"\\]+', vendor) or not vendor.isprintable():
        raise ConfigError(
            f"--vendor: {vendor!r} is empty, or has a quote, a backslash or unprintable letters"
        )
    if len(vendor) > LONGEST_VENDOR:
        raise ConfigError(
            f"--vendor: {vendor!r} has {len(vendor)} letters, {LONGEST_VENDOR} at most"
        )
    words = _words(name) | {"vendor": vendor}
    sources = sorted(TEMPLATE.rglob("*.in"), key=lambda path: (path.parent != TEMPLATE, path))
    return {
        str(path.relative_to(TEMPLATE)).removesuffix(".in").replace("NAME", name): Template(
            path.read_text(encoding="utf-8")
        ).substitute(words)
        for path in sources
    }


def _words(name: str) -> dict[str, str]:
    """What the contract of this core says, and the name in its spellings."""
    from importlib.metadata import version

    from anychip.contract.catalogue import CATALOGUE
    from anychip.contract.signature import Tier
    from anychip.contract.version import CONTRACT, dotted

    major, minor = version("anychip").split(".")[:2]
    wanted = (op for op, signature in CATALOGUE.items() if signature.tier is Tier.REQUIRED)
    return {
        "name": name,
        "Name": "".join(part.capitalize() for part in name.split("_")),
        "distribution": f"anychip-{name.replace('_', '-')}",
        "anychip": f"anychip>={major}.{minor},<{int(major) + 1}",
        "contract": ", ".join(map(str, CONTRACT)),
        "version": dotted(CONTRACT),
        "operators": ", ".join(f"`{op}`" for op in wanted),
    }


def _check_name(name: str) -> None:
    """Refuse what cannot be a chip's name here, with the way out."""
    from anychip.contract.discovery import chip_names

    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ConfigError(
            f"NAME: {name!r} cannot name a package: begin with a small letter, go on with small "
            "letters, digits and single underscores, as in granite_2"
        )
    if keyword.iskeyword(name):
        raise ConfigError(f"NAME: {name!r} is a word of Python; add one, as in {name}_chip")
    if len(name) > LONGEST_NAME:
        raise ConfigError(f"NAME: {name!r} has {len(name)} letters, {LONGEST_NAME} at most")
    if name in chip_names():
        raise ConfigError(
            f"NAME: a chip '{name}' is installed already (see `anychip chips`): take another name, "
            "or uninstall that package first"
        )


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write into a new or empty folder. Raises ConfigError where that is not possible."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"--into: {folder} is there and not empty; nothing was written. Move it away, or "
                "name another folder with --into"
            )
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        where = error.filename or folder
        raise ConfigError(f"--into: {where} cannot be written: {error.strerror}") from error
