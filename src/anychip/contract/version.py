"""The version of the contract. A different major is refused; a minor only adds."""

from __future__ import annotations

from collections.abc import Sequence

CONTRACT = (0, 5)
"""(major, minor). `CHANGELOG.md` beside this file says what each version changed."""


def dotted(version: Sequence[int]) -> str:
    """A version for people: 0.5."""
    return ".".join(map(str, version))
