"""Build: torch brings its kernels; there is nothing to compile."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from anychip.contract.build import Build, Finding, Library, Verdict

INSTALL = "pip install 'anychip[torch]'"


class TorchBuild(Build):
    """Needs torch, found by its installed metadata: looking imports nothing."""

    def requires(self) -> tuple[Library, ...]:
        """Torch; the vendor's plugin is the vendor's to name."""
        return (Library("torch", f"torch ({INSTALL})"),)

    def versions(self) -> Mapping[str, str]:
        """Torch's, where it is installed."""
        try:
            return {"torch": version("torch")}
        except PackageNotFoundError:
            return {}

    def check(self) -> tuple[Finding, ...]:
        """Whether torch is installed."""
        found = self.versions().get("torch")
        if found is None:
            return (Finding("torch", Verdict.BAD, "not installed", INSTALL),)
        return (Finding("torch", Verdict.GOOD, found),)
