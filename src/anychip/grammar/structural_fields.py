"""Reads the objects of a structural tag: each field known, of the right form, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.grammar.errors import GrammarError, step

FIELDS: Mapping[str, frozenset[str]] = {
    "const_string": frozenset({"value"}),
    "json_schema": frozenset(
        {"json_schema", "style", "any_order", "max_whitespace_cnt", "excludes"}
    ),
    "any_text": frozenset({"excludes", "max_tokens", "max_chars"}),
    "grammar": frozenset({"grammar", "syntax"}),
    "regex": frozenset({"pattern"}),
    "token": frozenset({"token"}),
    "sequence": frozenset({"elements"}),
    "or": frozenset({"elements"}),
    "tag": frozenset({"begin", "content", "end"}),
    "triggered_tags": frozenset(
        {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}
    ),
    "tags_with_separator": frozenset({"tags", "separator", "at_least_one", "stop_after_first"}),
    "optional": frozenset({"content"}),
    "plus": frozenset({"content"}),
    "star": frozenset({"content"}),
    "repeat": frozenset({"min", "max", "content"}),
}
REFUSED = frozenset(
    "qwen_xml_parameter exclude_token any_tokens token_triggered_tags dispatch "  # noqa: SIM905
    "token_dispatch".split()
)
_ONLY = {
    "style": ("json",),
    "syntax": ("ebnf",),
    "any_order": (False,),
    "max_whitespace_cnt": (None,),
    "excludes": ([],),
    "max_tokens": (None,),
    "max_chars": (None,),
}
"""Fields that are taken with these values alone."""


def kind_of(value: Any, pointer: str) -> str:
    """The type of a format, its fields checked by name. GrammarError with the field's pointer."""
    if not isinstance(value, dict):
        raise GrammarError("a format is an object with a type", pointer)
    kind = value.get("type")
    if kind in REFUSED:
        raise GrammarError(f"the format {kind} is not supported", step(pointer, "type"))
    if not isinstance(kind, str) or kind not in FIELDS:
        known = ", ".join(FIELDS)
        raise GrammarError(f"the format {kind!r:.60} is not known: {known}", step(pointer, "type"))
    check_fields(value, FIELDS[kind] | {"type"}, pointer)
    for name, allowed in _ONLY.items():
        if value.get(name, allowed[0]) not in allowed:
            listed = " or ".join(map(repr, allowed))
            raise GrammarError(f"{name} may only be {listed}", step(pointer, name))
    return kind


def check_fields(value: Mapping[str, Any], known: frozenset[str], pointer: str) -> None:
    """GrammarError for a field that is not among `known`."""
    for name in value:
        if name not in known:
            raise GrammarError(f"there is no field {name!r:.60} here", step(pointer, name))


def text_of(value: Mapping[str, Any], name: str, pointer: str) -> str:
    """A field that is a string."""
    found = value.get(name)
    if not isinstance(found, str):
        raise GrammarError(f"{name} must be a string", step(pointer, name))
    return found


def list_of(value: Mapping[str, Any], name: str, pointer: str) -> list[Any]:
    """A field that is a list with an entry."""
    found = value.get(name)
    if not isinstance(found, list) or not found:
        raise GrammarError(f"{name} must be a list with an entry", step(pointer, name))
    return found


def texts_of(value: Mapping[str, Any], name: str, pointer: str) -> tuple[str, ...]:
    """A field that is a list of strings, none of them empty."""
    found = list_of(value, name, pointer)
    for at, one in enumerate(found):
        if not isinstance(one, str) or not one:
            raise GrammarError("must be a string, and not empty", step(step(pointer, name), at))
    return tuple(found)


def flag_of(value: Mapping[str, Any], name: str, pointer: str) -> bool:
    """A field that is true or false, false where it is left out."""
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise GrammarError(f"{name} must be true or false", step(pointer, name))
    return found


def count_of(value: Mapping[str, Any], name: str, pointer: str, least: int, most: int) -> int:
    """A field that is a whole number in these bounds."""
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise GrammarError(f"{name} must be from {least} to {most}", step(pointer, name))
    return found
