"""Every check of the conformance kit, one test each: `pytest -k O1`, `pytest -k memory`."""

from __future__ import annotations

from collections.abc import Callable


def test_conformance(conformance_check: Callable[[], None]) -> None:
    conformance_check()
