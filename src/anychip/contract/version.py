"""The version of the contract. A different major is refused; a minor only adds."""

from __future__ import annotations

CONTRACT = (0, 5)
"""(major, minor). `CHANGELOG.md` beside this file says what each version changed."""
