"""Why a flag is refused and which is nearest: for SGLang's flags and for typing errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.resources import files


def refusal(name: str, ours: Iterable[str]) -> str:
    """One sentence about a flag that we do not have. name: with its dashes."""
    known = sorted(set(ours))
    reason = sglang_reason(name)
    if reason:
        return f"{name} is a flag of SGLang that AnyChip does not have: {reason}"
    close = near(name, known)
    hint = f"; the nearest is {close}" if close else ""
    return f"there is no flag {name}{hint} (see --help)"


def sglang_reason(name: str) -> str:
    """Why we do not have a flag of SGLang's; empty for any other name."""
    return _reasons().get(name, "")


def near(name: str, known: Iterable[str]) -> str:
    """The most similar name where it may be a typing error's; empty where none is that similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The most similar name; ours are never empty, so there always is one."""
    choices = list(known)
    return difflib.get_close_matches(name, choices, n=1, cutoff=0.0)[0]


def _reasons() -> dict[str, str]:
    """`sglang_flags.txt`: a `# reason` line, then the flags it answers; `##` is a comment."""
    reasons: dict[str, str] = {}
    reason = ""
    text = files("anychip").joinpath("sglang_flags.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif not line.startswith("##"):
            reasons.update((f"--{flag}", reason) for flag in line.split())
    return reasons
