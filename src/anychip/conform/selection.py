"""Which checks of the kit are run: levels with the gates before them, or single checks by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from anychip.conform.index import CHECKS
from anychip.conform.proof import Level
from anychip.conform.result import Listed
from anychip.flags import ConfigError
from anychip.refusal import nearest

ORDER = tuple(Level)


@dataclass(frozen=True)
class Selection:
    """levels: run wholly; of the levels before the last of them, the gates are run too.

    only: patterns `ID` or `ID:SUBJECT` in which * stands for anything: then just these checks are
    run, without gates. A check's key as a report prints it (`O1 rms_norm`) is a pattern too.
    Raises ConfigError for a pattern whose id is none of `index.py`, or of none of the levels.
    """

    levels: tuple[Level, ...] = ORDER
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = [id for id, (level, _) in CHECKS.items() if level in self.levels]
        for pattern in self.only:
            if not any(_id_matches(pattern, id) for id in ids):
                raise ConfigError(
                    f"--only: {pattern!r} matches no check of {', '.join(self.levels)}; "
                    f"the nearest id is {nearest(_parts(pattern)[0], ids)!r}, as in ID:SUBJECT"
                )

    def lists(self, level: Level) -> bool:
        """Whether the checks of this level are needed at all."""
        if self.only:
            mine = [id for id, (of, _) in CHECKS.items() if of is level and level in self.levels]
            return any(_id_matches(pattern, id) for pattern in self.only for id in mine)
        return ORDER.index(level) <= max(ORDER.index(asked) for asked in self.levels)

    def takes(self, check: Listed) -> bool:
        """Whether this check is run."""
        if self.only:
            return check.level in self.levels and any(matches(p, check) for p in self.only)
        return check.level in self.levels or check.gate

    def refuse_unmatched(self, listed: Sequence[Listed]) -> None:
        """Raise ConfigError for the first pattern that none of the listed checks answers to."""
        for pattern in self.only:
            if not any(matches(pattern, check) for check in listed):
                keys = [check.key.replace(" ", ":") for check in listed]
                hint = f"; the nearest is {nearest(pattern, keys)!r}" if keys else ""
                raise ConfigError(f"--only: {pattern!r} matches no check of this chip{hint}")


def levels_of(names: Iterable[str]) -> tuple[Level, ...]:
    """Levels by name, in their order; all of them where none is named. Raises ConfigError."""
    asked = set(names)
    unknown = sorted(asked - {level.value for level in Level})
    if unknown:
        offer = ", ".join(level.value for level in Level)
        raise ConfigError(f"--level: {unknown[0]!r} is no level; there are: {offer}")
    return tuple(level for level in Level if level.value in asked) or ORDER


def matches(pattern: str, check: Listed) -> bool:
    """Whether a pattern of `--only` means this check."""
    subject = _parts(pattern)[1]
    return _id_matches(pattern, check.id) and fnmatchcase(check.subject, subject or "*")


def _id_matches(pattern: str, id: str) -> bool:
    return fnmatchcase(id, _parts(pattern)[0])


def _parts(pattern: str) -> tuple[str, str]:
    id, _, subject = pattern.replace(" ", ":", 1).partition(":")
    return id, subject
