"""Build: what must be installed, which versions are there. Pebble's "SDK" is numpy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from anychip.contract.build import Build, Finding, Library, Verdict


class PebbleBuild(Build):
    """Nothing to build."""

    def requires(self) -> tuple[Library, ...]:
        """Vendor: its shared libraries and headers, with the package that brings each."""
        return ()

    def versions(self) -> Mapping[str, str]:
        """Vendor: what its own version call returns, never what an environment variable says."""
        return {"numpy": version("numpy")}

    def check(self) -> tuple[Finding, ...]:
        """Vendor: are the libraries there, do driver and SDK go together?"""
        return (Finding("sdk", Verdict.GOOD, f"numpy {version('numpy')}"),)
