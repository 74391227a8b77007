"""Why a flag is refused and which is nearest: for SGLang's flags and for typing errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.resources import files

_VLLM = {
    "--gpu-memory-utilization": "--mem-fraction-static",
    "--max-model-len": "--context-length",
    "--max-num-seqs": "--max-running-requests",
    "--max-num-batched-tokens": "--chunked-prefill-size",
    "--enable-auto-tool-choice": "always on where --tool-call-parser finds a format",
    "--enable-prefix-caching": "always on; --disable-radix-cache turns it off",
    "--enable-chunked-prefill": "always on; --chunked-prefill-size -1 turns it off",
    "--num-gpu-blocks-override": "--max-total-tokens",
    "--block-size": "--page-size",
    "--kv-cache-memory-bytes": "--max-total-tokens",
    "--swap-space": "--hicache-size",
}
"""What vLLM's users look for under another name."""


def refusal(name: str, ours: Iterable[str]) -> str:
    """One sentence about a flag that we do not have. name: with its dashes."""
    known = sorted(set(ours))
    reason = sglang_reason(name)
    if reason:
        return f"{name} is a flag of SGLang that AnyChip does not have: {reason}"
    if name in _VLLM:
        return f"{name} is a flag of vLLM; here it is {_VLLM[name]} (see --help)"
    close = near(name, known)
    hint = f"; the nearest is {close}" if close else ""
    return f"there is no flag {name}{hint} (see --help)"


def sglang_reason(name: str) -> str:
    """Why we do not have a flag of SGLang's; empty for any other name."""
    return _reasons().get(name, "")


def near(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """The most similar name where it may be a typing error's; empty where none is that similar.

    alike: how similar it must be, 1 is equal; more where all names have much in common.
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=alike)), "")


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
