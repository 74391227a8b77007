"""What `build` says when it cannot: one line for a person, with the way out."""

from __future__ import annotations


class BuildRefused(Exception):
    """The tree cannot be made as asked. The text says why, and what would help."""
