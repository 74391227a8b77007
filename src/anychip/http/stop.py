"""How the server is told to end."""

from __future__ import annotations

import asyncio


class Stop:
    """How the server is told to end: once to drain, twice to end at once. Call it to ask."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = asyncio.Event()

    def __call__(self) -> None:
        """Ask."""
        (self.urgent if self.asked.is_set() else self.asked).set()
