"""Settings of what answers look like: structured output."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """How answers are held to a form."""

    grammar_backend: str = declared(
        "llguidance",
        Flag(
            ("--grammar-backend",),
            "output",
            "what computes the masks of structured output; none: requests for it are refused",
            "NAME",
            choices=("llguidance", "xgrammar", "none"),
            way_out="llguidance takes the same schemas, regexes, grammars and structural tags",
            differs="is xgrammar",
        ),
    )
    constrained_json_disable_any_whitespace: bool = declared(
        False,
        Flag(
            ("--constrained-json-disable-any-whitespace",),
            "output",
            "JSON of structured output has no blanks between its parts",
        ),
    )
    disable_jump_forward: bool = declared(
        False,
        Flag(
            ("--disable-jump-forward",),
            "output",
            "sample tokens that a grammar forces one by one instead of computing them together",
        ),
    )
