"""`anychip build CHIP`: compiles a chip's kernels, and tells what is wrong with its SDK."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from anychip.cli.build_layer import FLAGS, build_layer, chip_named, told_options
from anychip.cli.chip_flags import add_chip_flags
from anychip.cli.output import say
from anychip.config import ConfigError, FlagParser, ServeConfig, own_values, parse
from anychip.flags import Flag, add_flags, declared
from anychip.settings import user_path

if TYPE_CHECKING:
    from anychip.contract.build import Build, Finding
    from anychip.contract.registration import Chip

_SOURCES = "sources"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What the compiler is given besides what the chip finds: chip options of those names."""

    include_dirs: str | None = declared(
        None, Flag(("--include-dirs",), _SOURCES, "further folders of headers", "A,B")
    )
    library_dirs: str | None = declared(
        None, Flag(("--library-dirs",), _SOURCES, "further folders of libraries", "C,D")
    )
    define: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={"flag": Flag(("--define",), _SOURCES, "macro, repeatable", "NAME=VALUE")},
    )
    forget: bool = declared(
        False, Flag(("--forget",), _SOURCES, "drop the options that an earlier build kept, and end")
    )

    def texts(self) -> dict[str, str]:
        """Chip option -> its value; folders as full paths. Raises ConfigError."""
        found = {}
        for name in ("include_dirs", "library_dirs"):
            flag, text = f"--{name.replace('_', '-')}", getattr(self, name)
            folders = (user_path(part, flag).absolute() for part in (text or "").split(",") if part)
            found[name] = ",".join(map(str, folders))
        found["define"] = ",".join(f"{name}={value}" for name, value in self.define.items())
        return {name: text for name, text in found.items() if text}


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip build",
        "Compile a chip's kernels against what is installed here, unless that was done before, and"
        " load them once. Then tell what is found of the vendor's SDK: libraries, symbols,"
        " versions. Options that are given are kept beside the kernels, for every later command"
        " with this chip. Exit code 1 where something is red.",
    )
    parser.usage = f"{parser.prog} CHIP [FLAG ...]"
    parser.show_examples(
        "anychip build CHIP",
        "anychip build CHIP --include-dirs /opt/sdk/include --library-dirs /opt/sdk/lib",
        "anychip build CHIP --forget",
    )
    parser.add_argument("chip", metavar="CHIP", help="see `anychip chips`")
    add_chip_flags(parser, FLAGS)
    add_flags(parser, BuildOptions)
    return parser


def run(argv: Sequence[str]) -> int:
    """Compile, then print what was used and the findings; 1 where one is bad."""
    config, namespace = parse(add_arguments(), argv)
    config = dataclasses.replace(config, backend=namespace.chip)
    options = BuildOptions(**own_values(BuildOptions, namespace))
    cls = chip_named(config.backend)
    if options.forget:
        return _forget(config)
    typed = _typed(cls, config.chip_option, options.texts())
    config = dataclasses.replace(config, chip_option=typed)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="anychip: %(message)s")
    from anychip.cli.doctor import draw
    from anychip.contract.build import Verdict

    say(f"{cls.name}: {'; '.join(told_options(cls, config)) or 'no options'}")
    red = 0
    for finding in _build(cls, config):
        draw(finding)
        red += finding.verdict is Verdict.BAD
    return 1 if red else 0


def _forget(config: ServeConfig) -> int:
    from anychip.contract.remembered import forget, record_of

    path = record_of(config.build_path, config.backend)
    dropped = forget(config.backend, config.build_path)
    say(f"{path}: {'dropped' if dropped else 'not there, nothing was kept'}")
    return 0


def _typed(cls: type[Chip], given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Both together. Raises ConfigError for a flag that stands for an option the chip lacks."""
    names = {option.name for option in cls.options}
    for name in own:
        flag = f"--{name.replace('_', '-')}"
        if name not in names:
            offer = ", ".join(sorted(names)) or "none"
            raise ConfigError(f"{flag}: chip {cls.name!r} has no option {name!r}; it has: {offer}")
        if name in given:
            raise ConfigError(f"{flag}: --chip-option {name}={given[name]} is given too")
    return {**{name: _full_path(value) for name, value in given.items()}, **own}


def _full_path(value: str) -> str:
    """A path that is there, as it is right from every folder; what is none stays as it is."""
    path = user_path(value, "--chip-option") if "/" in value else None
    return str(path.absolute()) if path is not None and path.exists() else value


def _build(cls: type[Chip], config: ServeConfig) -> Iterator[Finding]:
    """What compiling gave, then what the chip's own look finds."""
    from anychip.contract.build import Verdict

    with build_layer(cls, config) as build:
        compiled = _compiled(build, config)
        yield compiled
        if config.chip_option and compiled.verdict is not Verdict.BAD:
            yield _remember(cls, config)
        yield from build.check()


def _compiled(build: Build, config: ServeConfig) -> Finding:
    from anychip.contract.build import Finding, Verdict
    from anychip.contract.errors import ChipError
    from anychip.contract.layer import empty_slots

    if "compile" in empty_slots(type(build)):
        return Finding("compile", Verdict.GOOD, "nothing to compile")
    began = time.monotonic()
    try:
        path = build.compile()
    except ChipError as error:
        step = f"mend what comes first in the text, then: anychip build {config.backend}"
        return Finding("compile", Verdict.BAD, str(error), step)
    return Finding("compile", Verdict.GOOD, f"{path}, {time.monotonic() - began:.1f} s")


def _remember(cls: type[Chip], config: ServeConfig) -> Finding:
    """Keep the typed options, and those that were kept before."""
    from anychip.contract.build import Finding, Verdict
    from anychip.contract.remembered import remember, remembered

    kept = {**remembered(cls, config.build_path), **config.chip_option}
    kept.pop("build_dir", None)  # the folder in which this is kept
    try:
        path = remember(cls.name, config.build_path, kept)
    except OSError as error:
        text = f"the options are not kept: {config.build_path}: {error.strerror}"
        return Finding("options", Verdict.BAD, text, "name another folder with --build-dir")
    text = f"kept for every later command with this chip, in {path}: "
    text += ", ".join(f"{name}={value}" for name, value in kept.items())
    return Finding("options", Verdict.GOOD, f"{text}; anychip build {cls.name} --forget drops them")
