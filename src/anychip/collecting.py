"""Python's collector of cycles rests while a process starts.

Imports make some forty thousand objects that stay as long as the process does. Collections that
run meanwhile look at all of them again and again, and find next to nothing.
"""

from __future__ import annotations

import gc


def rest() -> None:
    """No collections until `resume`."""
    gc.disable()


def resume() -> None:
    """Collect again, but for what is there now. Nothing where collections did not rest: then they
    are somebody else's to decide on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
