"""`anychip sim`: finds the installed simulators of vendor SDKs, and hands a command over to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points

from anychip.cli.output import say
from anychip.config import ConfigError, FlagParser
from anychip.refusal import near

ENTRY_POINT_GROUP = "anychip.simulators"
HOW_TO_INSTALL = (
    "to install one: pip install -e ./simulators/NAME (folders of AnyChip's repository)"
)


class SimulatorBroken(Exception):
    """A simulator is installed, but cannot be imported or is no command."""


def add_arguments() -> FlagParser:
    """The parser of this command; the flags of `build` are the simulator's own."""
    parser = FlagParser(
        "anychip sim", "Make a simulated SDK of a chip vendor, to run its chip without a card."
    )
    parser.usage = f"{parser.prog} build NAME [FLAG ...]"
    parser.epilog = f"{_listing()} Its own flags: {parser.prog} build NAME --help"
    return parser


def run(argv: Sequence[str]) -> int:
    """List the simulators, or run one; the exit code is the simulator's."""
    words = list(argv)
    if not words:
        say(_listing())
        return 0
    if words[0].startswith("-"):
        add_arguments().parse_args(words)
    verb, name, *rest = [*words, ""] if len(words) == 1 else words
    if verb != "build":
        raise ConfigError(f"anychip sim {verb}: the one thing to ask for is `build`; see --help")
    if not name or name.startswith("-"):
        raise ConfigError(f"anychip sim build: which one? {_listing()}")
    return int(_command(name)([verb, *rest]))


def _installed() -> dict[str, EntryPoint]:
    """Name -> entry point, sorted; imports none."""
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found}


def _listing() -> str:
    """Each simulator with its distribution, or how to install one."""
    installed = _installed()
    if not installed:
        return f"No simulator is installed; {HOW_TO_INSTALL}."
    names = (f"{name} ({_origin(entry)})" for name, entry in installed.items())
    return f"Installed simulators: {', '.join(names)}."


def _origin(entry: EntryPoint) -> str:
    dist = entry.dist
    return f"{dist.name} {dist.version}" if dist else entry.value


def _command(name: str) -> Callable[[Sequence[str]], int]:
    """What the entry point leads to. Raises ConfigError for an unknown name, SimulatorBroken."""
    installed = _installed()
    if name not in installed:
        close = near(name, installed)
        there = f"installed are {', '.join(installed)}" if installed else HOW_TO_INSTALL
        hint = f"the nearest is {close!r}" if close else there
        raise ConfigError(f"there is no simulator {name!r}; {hint}")
    entry = installed[name]
    try:
        command = entry.load()
    except (ImportError, AttributeError) as error:
        text = f"simulator {name} ({entry.value}) cannot be imported: {error}"
        raise SimulatorBroken(text) from error
    if not callable(command):
        raise SimulatorBroken(f"simulator {name} ({entry.value}) is no command")
    return command  # type: ignore[no-any-return]
