"""The build layer: what must be installed, which versions go together, sources to kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from anychip.contract.layer import Layer, optional, required


class Verdict(str, Enum):
    """Colour of a finding."""

    GOOD = "good"
    UNKNOWN = "unknown"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. step: what to do next, empty where nothing is to be done."""

    name: str
    verdict: Verdict
    text: str
    step: str = ""


@dataclass(frozen=True)
class Library:
    """A shared library or header that must be there. package: where it comes from.

    variable: the environment variable that leads to it. path: where it was found, empty where it
    was not, or where the system's loader finds it by name.
    """

    name: str
    package: str
    header: bool = False
    variable: str = ""
    path: str = ""


@dataclass(frozen=True)
class Compatibility:
    """One row of the version matrix, with where that was recorded. A version may be a pattern
    (`5.*`)."""

    versions: Mapping[str, str]
    verdict: Verdict
    source: str

    def fits(self, here: Mapping[str, str]) -> bool:
        """Whether the row is about the versions that are here."""
        parts = self.versions.items()
        return all(n in here and fnmatchcase(here[n], pattern) for n, pattern in parts)


class Build(Layer, contract=True):
    """A chip with nothing to build returns empty tuples and no findings."""

    @required
    def requires(self) -> tuple[Library, ...]:
        """Libraries and headers, runtime and build time."""
        raise NotImplementedError

    @required
    def versions(self) -> Mapping[str, str]:
        """Measured versions of compiler, SDK, driver, kernels."""
        raise NotImplementedError

    @required
    def check(self) -> tuple[Finding, ...]:
        """Look, without building."""
        raise NotImplementedError

    @optional
    def matrix(self) -> tuple[Compatibility, ...]:
        """Versions known to go together, or not."""
        raise NotImplementedError

    @optional
    def environment(self) -> Mapping[str, str]:
        """Variables that a shell needs before programs of the vendor's SDK find each other."""
        raise NotImplementedError

    @optional
    def compile(self) -> str:
        """Build the kernels unless the cache has them; returns the path. Raises ChipError."""
        raise NotImplementedError
