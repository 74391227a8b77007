"""What a run of the kit is made of: checks that are listed, what each gave, who watches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anychip.conform.proof import Level, Proof


@dataclass(frozen=True)
class Listed:
    """A check as its list tells it; see `proof.Check`, which can also be run."""

    id: str
    level: Level
    subject: str = ""
    gate: bool = False

    @property
    def key(self) -> str:
        """As `proof.Check.key`."""
        return f"{self.id} {self.subject}".rstrip()


@dataclass(frozen=True)
class Result:
    """What one check gave. key: the check's, or the level's name for a level that was not run."""

    key: str
    level: Level
    proof: Proof
    seconds: float = 0.0


class CannotList(Exception):
    """The checks of a level cannot even be listed, because the chip does not open, say."""


class ProcessLost(Exception):
    """The process of a check died or did not answer. The check is lost, the kit is not."""


class Prover(Protocol):
    """Lists the checks of a chip and runs them, here or in another process."""

    def checks(self, level: Level) -> Sequence[Listed]:
        """The checks of a level, in order. Raises CannotList."""

    def prove(self, check: Listed) -> Proof:
        """Run a listed check; what the chip raises is told in the proof. Raises ProcessLost."""


class Watcher:
    """Hears how a run goes on. This one does nothing with it."""

    def level_begins(self, level: Level, checks: int) -> None:
        """So many checks of a level will be run."""

    def check_begins(self, check: Listed) -> None:
        """A check is being run."""

    def check_ended(self, result: Result) -> None:
        """A check has a result; also one that is not run."""
