"""Symbols as C++ spells them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def demangled(symbols: Sequence[str]) -> dict[str, str]:
    """Symbol, or a line with symbols in it -> how C++ spells it; as it is where no `c++filt` is."""
    try:
        said = subprocess.run(
            ["c++filt"], input="\n".join(symbols), capture_output=True, text=True, timeout=30
        ).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        said = []
    return dict(zip(symbols, said if len(said) == len(symbols) else symbols, strict=True))
