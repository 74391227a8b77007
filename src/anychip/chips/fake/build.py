"""Build: there is nothing to build; the versions are those of the libraries underneath."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from anychip.contract.build import Build, Finding, Library, Verdict


class FakeBuild(Build):
    """Nothing is required beyond what anychip itself needs."""

    def requires(self) -> tuple[Library, ...]:
        """Nothing."""
        return ()

    def versions(self) -> Mapping[str, str]:
        """Libraries that compute here."""
        return {name: version(name) for name in ("numpy", "ml_dtypes")}

    def check(self) -> tuple[Finding, ...]:
        """One finding, so that a report has a line."""
        return (Finding("fake", Verdict.GOOD, "a device in software: nothing to build"),)
