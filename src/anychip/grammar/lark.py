"""A client's own grammar in llguidance's dialect of Lark: what would reach past it is refused."""

from __future__ import annotations

import json
import re

from anychip.grammar.errors import GrammarError
from anychip.grammar.json_schema import json_source
from anychip.grammar.json_text import read_json
from anychip.grammar.limits import GrammarLimits
from anychip.grammar.patterns import check_pattern

_TOKEN = re.compile(
    r"""(?P<comment>(?://|\#)[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"i?)
      | (?P<regex>/(?:[^/\\\n]|\\.)+/[a-z]*)
      | (?P<json>%json\b)
      | (?P<command>%[a-z]+\b)
      | (?P<grammar>@[A-Za-z0-9_]+)
      | (?P<options>[A-Za-z_][A-Za-z0-9_-]*\s*\[[^\]\n]*\])
    """,
    re.VERBOSE,
)
_COMMANDS = ("%ignore", "%import", "%regex", "%llguidance")
_REFUSED_OPTIONS = ("stop", "max_tokens", "temperature", "stop_capture")


def checked_lark(text: str, limits: GrammarLimits, any_whitespace: bool) -> str:
    """The same grammar, its schemas as they are enforced here. GrammarError for options that
    change sampling, for other grammars, and for keywords of schemas that would be ignored."""
    parts: list[str] = []
    at = 0
    while (found := _TOKEN.search(text, at)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        parts.append(text[at : found.end()])
        at = found.end()
        try:
            if found["json"]:
                schema, at = _json_after(text, at, limits)
                parts.append(" " + json_source(schema, any_whitespace))
            else:
                _check_token(str(found.lastgroup), found[0])
        except GrammarError as error:
            raise GrammarError(f"line {line}: {error}") from error
    return "".join([*parts, text[at:]])


def _json_after(text: str, at: int, limits: GrammarLimits) -> tuple[object, int]:
    """The JSON value that begins at `at`, and where it ends."""
    while text[at : at + 1].isspace():
        at += 1
    try:
        _, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"%json is not followed by JSON: {error}") from error
    return read_json(text[at:end], "the schema", limits), end


def _check_token(kind: str, value: str) -> None:
    if kind == "grammar":
        raise GrammarError(f"{value}: there is no other grammar to refer to")
    if kind == "command" and value not in _COMMANDS:
        raise GrammarError(f"{value} is not supported; known are %json, {', '.join(_COMMANDS)}")
    if kind == "regex":
        check_pattern(value[1 : value.rindex("/")])
    if kind == "options":
        names = re.findall(r"[a-z_]+", value[value.index("[") :])
        refused = [name for name in names if name in _REFUSED_OPTIONS]
        if refused:
            raise GrammarError(f"the option {refused[0]} is not supported; use lazy or suffix")
