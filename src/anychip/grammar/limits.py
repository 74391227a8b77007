"""How large a grammar may be, and how much it may cost."""

from __future__ import annotations

import msgspec

from anychip.grammar.errors import GrammarError
from anychip.request import GrammarSpec

KINDS = ("json_schema", "json_object", "regex", "ebnf", "choice", "structural_tag", "lark")


class GrammarLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one grammar, and of the cache of compiled ones.

    text_bytes: UTF-8 bytes of `GrammarSpec.text`. depth: nested brackets of JSON, of a regex and
    of an EBNF grammar. choices: entries of a choice. compile_s: seconds that the check may take.
    compile_bytes: that the process that checks may grow by (Linux; elsewhere its whole size).
    cache_bytes: upper bound of what compiled grammars that nobody uses may keep.
    lexer_states: states that one compiled grammar remembers; past it, it is compiled anew.
    step_s: processor seconds of one mask or one token, past which the request ends; for backends
    that do not bound what a parser holds.
    """

    text_bytes: int = 256 << 10
    depth: int = 64
    choices: int = 10_000
    compile_s: float = 3.0
    compile_bytes: int = 1 << 30
    cache_bytes: int = 512 << 20
    lexer_states: int = 16_000
    step_s: float = 0.5


def check_size(spec: GrammarSpec, limits: GrammarLimits) -> None:
    """GrammarError for what need not be looked into: kind, size, characters."""
    if spec.kind not in KINDS:
        raise GrammarError(f"there is no kind of grammar {spec.kind!r:.60}: {', '.join(KINDS)}")
    try:
        size = len(spec.text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise GrammarError("the grammar holds a lone surrogate, which is no text") from error
    if size > limits.text_bytes:
        raise GrammarError(f"the grammar has {size} bytes; at most {limits.text_bytes}")
    if "\0" in spec.text:
        raise GrammarError("the grammar holds the character NUL, which cannot be generated")
    if not spec.text.strip() and spec.kind != "json_object":
        raise GrammarError(f"the {spec.kind} is empty")
