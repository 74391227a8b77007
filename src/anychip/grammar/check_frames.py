"""What the process that checks grammars and its parent say to each other (frames: see
text/frames.py). The first frame to the child is its CheckSetup."""

from __future__ import annotations

import msgspec

from anychip.grammar.limits import GrammarLimits


class CheckSetup(msgspec.Struct, frozen=True, array_like=True):
    """The vocabulary to check against (see Vocabulary), the limits, and which backend is served."""

    pieces: tuple[bytes, ...]
    special: dict[str, int]
    eos_ids: tuple[int, ...]
    size: int
    limits: GrammarLimits
    backend: str


class CheckReply(msgspec.Struct, frozen=True, array_like=True):
    """Nothing wrong, or what is and where. later: it was not judged, and may be sent again."""

    error: str | None = None
    pointer: str | None = None
    later: bool = False
