"""How a setting is declared, read from text and checked: one `Flag` beside each default."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

LARGEST = 2**31 - 1
"""Upper limit of a count that names no other: what an int32 index can address."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class ConfigError(ValueError):
    """A setting that cannot be obeyed. The text names it, its value, the limit and the way out."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """One setting as users see it.

    names: spellings on the command line, the first is the one that messages use; none: only `env`.
    low, high: inclusive limits of a number. spelled: other spellings of a choice.
    way_out: added to a refusal. differs: how our default or meaning differs from SGLang's.
    secret: the value is never printed.
    """

    names: tuple[str, ...]
    group: str
    help: str
    metavar: str = "N"
    choices: tuple[str, ...] = ()
    spelled: Mapping[str, str] = dataclasses.field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    way_out: str = ""
    differs: str = ""
    secret: bool = False
    env: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The spellings in a YAML file, which are also the tail of the environment variables."""
        return tuple(name[2:].replace("-", "_") for name in self.names)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A declared field: where the value goes, its flag, and how its text is read."""

    field: str
    flag: Flag
    default: Any
    read: Callable[[str], Any]
    repeated: bool = False
    switch: bool = False
    listed: bool = False


def declared(default: Any, flag: Flag) -> Any:
    """A dataclass field that is a setting."""
    return dataclasses.field(default=default, metadata={"flag": flag}, repr=not flag.secret)


def settings_of(struct: type) -> Iterator[Setting]:
    """Every declared field of a dataclass, in order."""
    for item in dataclasses.fields(struct):
        flag = item.metadata.get("flag")
        if flag is not None:
            kind = str(item.type).removesuffix(" | None")
            default = {} if kind == "dict[str, str]" else item.default
            switch, pairs = kind == "bool", kind == "dict[str, str]"
            listed = kind == "tuple[str, ...]"
            yield Setting(item.name, flag, default, _READERS[kind], pairs, switch, listed)


def value_of(setting: Setting, raw: object, where: str) -> Any:
    """The checked value of `raw`: text from a command line, or a scalar, list or map of a file.

    Raises ConfigError, which names `where` the value came from.
    """
    if setting.repeated:
        return _pairs(raw, where)
    if setting.listed:
        return _texts(raw, where)
    if isinstance(raw, (list, tuple, dict)):
        raise ConfigError(f"{where}: wants one value, got {raw!r}")
    text = _text(raw)
    try:
        value = setting.read(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {_shown(setting.flag, text)} is not {error}") from None
    value = setting.flag.spelled.get(value, value) if isinstance(value, str) else value
    check(setting.flag, value, where)
    return value


def check(flag: Flag, value: object, where: str) -> None:
    """Raise ConfigError where `value` is outside the flag's choices or limits."""
    reason = ""
    if flag.choices and value not in flag.choices:
        reason = "is not one of " + ", ".join(flag.choices)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        reason = _outside(flag, value)
    elif isinstance(value, str) and (not value or not value.isprintable()):
        reason = "is empty or has unprintable characters"
    if reason:
        tail = f"; {flag.way_out}" if flag.way_out else ""
        raise ConfigError(f"{where}: {_shown(flag, value)} {reason}{tail}")


def check_values(settings: object) -> None:
    """Check every declared field of a dataclass object that is set. Raises ConfigError."""
    for setting in settings_of(type(settings)):
        value = getattr(settings, setting.field)
        if value not in (None, "", {}):
            check(setting.flag, value, (setting.flag.names or (setting.flag.env,))[0])


def _outside(flag: Flag, value: float) -> str:
    if not math.isfinite(value):
        return "is not a finite number"
    if flag.low is not None and value < flag.low:
        return f"is under the least value {flag.low:g}"
    high = LARGEST if flag.high is None else flag.high
    return f"is over the largest value {high:.12g}" if value > high else ""


def _shown(flag: Flag, value: object) -> str:
    return "the value (not shown)" if flag.secret else repr(value)


def _text(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    return str(raw)


def _pairs(raw: object, where: str) -> dict[str, str]:
    """`NAME=VALUE` texts (a list, or one text with commas between), or a mapping."""
    if isinstance(raw, Mapping):
        return {_text(key): _text(value) for key, value in raw.items()}
    items = raw if isinstance(raw, list) else _text(raw).split(",")
    result: dict[str, str] = {}
    for item in items:
        name, mark, value = _text(item).partition("=")
        if not (mark and name.strip()):
            raise ConfigError(
                f"{where}: {item!r} is not NAME=VALUE: it needs a name and = in front"
            )
        if name.strip() in result:
            raise ConfigError(f"{where}: {name.strip()!r} is given twice")
        result[name.strip()] = value.strip()
    return result


def _texts(raw: object, where: str) -> tuple[str, ...]:
    """Texts: a list, or one text with semicolons between."""
    items = raw if isinstance(raw, list) else _text(raw).split(";")
    found = tuple(_text(item).strip() for item in items)
    for text in found:
        if not text or not text.isprintable():
            raise ConfigError(f"{where}: {text!r} is empty or has unprintable characters")
    return found


def _read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def _read_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("true or false")


_READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "dict[str, str]": str,
    "tuple[str, ...]": str,
}


PIPED_COLUMNS, FEWEST_COLUMNS = 240, 80
"""Columns of a help text that no terminal shows, and the fewest of one that is shown."""

_EXAMPLES = "examples:"


class _OneLineHelp(argparse.HelpFormatter):
    """Spellings once, however many there are. Every flag with its text is on one line, or on
    those that a terminal needs for it."""

    def __init__(self, prog: str) -> None:
        width = _help_columns()
        super().__init__(prog, max_help_position=min(50, width // 3), width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Prose is wrapped; an example keeps its line."""
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        return f"{names} {action.metavar}" if action.metavar and action.nargs != 0 else names


def _help_columns() -> int:
    if sys.stdout is None or not sys.stdout.isatty():
        return PIPED_COLUMNS
    return max(FEWEST_COLUMNS, shutil.get_terminal_size().columns)


class FlagParser(argparse.ArgumentParser):
    """argparse with one-line help, no abbreviations, and ConfigError in place of an exit."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [FLAG ...]",
            description=description,
            formatter_class=_OneLineHelp,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that every wrong setting is told in the same way."""
        raise ConfigError(f"{message} (see {self.prog} --help)")

    def show_examples(self, *lines: str) -> None:
        """End the help with these command lines."""
        self.epilog = "\n  ".join([_EXAMPLES, *lines])

    def flag_names(self) -> list[str]:
        """Every spelling that this parser knows."""
        return [name for action in self._actions for name in action.option_strings]

    def pair_flags(self) -> list[str]:
        """The flags that take NAME=VALUE, one pair each time that they are given."""
        return [a.option_strings[0] for a in self._actions if "=" in str(a.metavar or "")]


def add_flags(
    parser: argparse.ArgumentParser, struct: type, groups: Collection[str] | None = None
) -> None:
    """Declare the flags of `struct`, all or those of some groups, each under its group."""
    sections: dict[str, argparse._ArgumentGroup] = {}
    for setting in settings_of(struct):
        flag = setting.flag
        if not flag.names or (groups is not None and flag.group not in groups):
            continue
        if flag.group not in sections:
            sections[flag.group] = parser.add_argument_group(flag.group)
        options: dict[str, Any] = {"dest": setting.field, "default": None, "help": _help(setting)}
        options["metavar"] = None if setting.switch else flag.metavar
        if setting.switch:
            options |= {"nargs": "?", "const": "true"}
        elif setting.repeated:
            options |= {"action": "append"}
        elif setting.listed:
            options |= {"action": "extend", "nargs": "+"}
        sections[flag.group].add_argument(*flag.names, **options)


def _help(setting: Setting) -> str:
    flag, default = setting.flag, setting.default
    parts = [flag.help]
    if flag.choices:
        parts.append(f"({' | '.join(flag.choices)})")
    if default is not None and not (setting.switch or setting.repeated or setting.listed):
        parts.append(f"[{default}]")
    if flag.differs:
        parts.append(f"(SGLang: {flag.differs})")
    return " ".join(parts).replace("%", "%%")
