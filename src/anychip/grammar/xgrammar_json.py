"""A JSON schema as rules of xgrammar's EBNF: xgrammar writes them, and they are made exact here."""

from __future__ import annotations

import re
from typing import Any

import xgrammar

from anychip.grammar.errors import GrammarError
from anychip.grammar.json_text import write_json
from anychip.grammar.xgrammar_schema import Prepared, prepare

WHITESPACE = 64
"""Characters at one place, at most."""
_ESCAPE = r"basic_escape ::= ([\"\\/bfnrt])"
"""Without \\u: a property's name could be spelled twice, and the second time be another's."""
_NO_OTHERS = r"[^\0-\u001f\ud800-\udfff"
"""How a set of all other characters has to begin: xgrammar counts halves of pairs among them, and
in strings of a given length control characters."""
_CODE = re.compile(r"\\(?:x([0-9a-f]{2})|.)")
"""xgrammar writes two digits, and reads as many as there are."""
_BY_NUMBER = '"u" [A-F'
_MARKED = re.compile(r'Regex\("(marker\d+)", json_string=true\)')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_][A-Za-z0-9_.\-]*')


def json_rules(schema: Any, any_whitespace: bool) -> str:
    """Rules for the documents that a schema allows, `root` first among them. GrammarError with a
    pointer."""
    prepared = prepare(schema)
    return _made_exact(converted(prepared.schema, any_whitespace), prepared)


def converted(schema: dict[str, Any], any_whitespace: bool) -> str:
    """What xgrammar makes of a prepared schema. GrammarError for what it refuses."""
    try:
        grammar = xgrammar.Grammar.from_json_schema(
            write_json(schema),
            any_whitespace=any_whitespace,
            separators=None if any_whitespace else (",", ":"),
            max_whitespace_cnt=WHITESPACE if any_whitespace else None,
            strict_mode=False,
        )
    except RuntimeError as error:
        raise GrammarError(plain(error)) from error
    return str(grammar)


def _made_exact(text: str, prepared: Prepared) -> str:
    lines = []
    for line in text.split("\n"):
        fixed = _ESCAPE if line.startswith("basic_escape ::=") else line
        fixed = _CODE.sub(lambda found: f"\\u00{found[1]}" if found[1] else found[0], fixed)
        fixed = _TOKEN.sub(
            lambda found: (
                found[0].replace("[^", _NO_OTHERS, 1) if found[0].startswith("[^") else found[0]
            ),
            fixed,
        )
        lines.append(_MARKED.sub(lambda found: prepared.strings[found[1]], fixed))
    exact = "\n".join(lines)
    if _BY_NUMBER in exact or any(token in exact for token in ("Regex(", "TagDispatch(")):
        outside = _TOKEN.sub(lambda found: "" if found[0][0] in '"[' else found[0], exact)
        if _BY_NUMBER in exact or "Regex(" in outside or "TagDispatch(" in outside:
            raise GrammarError("this version of xgrammar writes its grammars in another way")
    return exact


def renamed(rules: str, mark: str) -> str:
    """The same rules, each name begun with `mark`, so that they may stand beside others."""
    names = {line.split(" ::= ")[0] for line in rules.split("\n") if " ::= " in line}

    def one(found: re.Match[str]) -> str:
        return mark + found[0] if found[0] in names else found[0]

    return _TOKEN.sub(one, rules)


def plain(error: RuntimeError) -> str:
    """What xgrammar complains about, in one short line, without its source files."""
    text = str(error).split("\n")[0]
    if "bad_alloc" in text:
        return "the grammar needs more memory to compile than it may; make it simpler"
    return re.sub(r"^\[[\d:]+\] \S+: ", "", text)[:300] or "xgrammar refuses it"
