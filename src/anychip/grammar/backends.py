"""Which library computes the masks: `--grammar-backend`."""

from __future__ import annotations

from anychip.grammar.errors import GrammarError

BACKENDS = ("llguidance", "none")
DEFAULT_BACKEND = "llguidance"

_REFUSED = {
    "xgrammar": (
        "xgrammar is not served: its package needs torch, transformers and triton, which AnyChip "
        "does without, and nothing of it was tested here. llguidance takes the same schemas, "
        "EBNF grammars and structural tags"
    ),
    "outlines": "outlines is not served; llguidance takes the same schemas and regexes",
}


def check_backend(name: str) -> None:
    """GrammarError, with the way out, for a backend that cannot be served."""
    if name not in BACKENDS:
        reason = _REFUSED.get(name, f"there is no grammar backend {name!r}")
        raise GrammarError(f"--grammar-backend {name}: {reason}; use {' or '.join(BACKENDS)}")


def refuse_disabled(name: str) -> None:
    """GrammarError where structured output was turned off with `--grammar-backend none`."""
    if name == "none":
        raise GrammarError(
            "this server was started with --grammar-backend none, without structured output"
        )
