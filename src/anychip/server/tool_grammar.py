"""Grammars that hold an answer to calls of tools: forced ones, and those of strict tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anychip.grammar.parts import (
    Part,
    schema_part,
    spec_of,
    tag_part,
    text_part,
    triggered_part,
)
from anychip.http.errors import bad_request
from anychip.request import GrammarSpec
from anychip.server.chat_tools import ToolWish
from anychip.server.grammar_fields import GrammarWish
from anychip.text.answer.formats import TOOL_FORMATS, CallSyntax, ToolFormat

_ANYTHING: Mapping[str, Any] = {"type": "object"}
FORCED = ("required", "named")


def tool_wish(
    wish: ToolWish, name: str, other: GrammarWish | None, before: list[Part]
) -> GrammarWish | None:
    """The grammar that the call's tools ask for; None where every text will do.

    name: of the format that calls are written in. other: a grammar that the call asks for
    besides: ApiError 400 where both would hold. before: what may come before forced calls.
    """
    forced = wish.choice in FORCED
    strict = [index for index, tool in enumerate(wish.offered) if _function(tool).get("strict")]
    if not forced and not strict:
        return None
    field = "tool_choice" if forced else f"tools[{strict[0]}]{wish.inside}.strict"
    if other is not None:
        raise bad_request(f"{field} and {other.field} both ask for a grammar; send one", field)
    form = TOOL_FORMATS[name]
    if not forced:
        return GrammarWish(spec=_free(wish, form), field="tools")
    return GrammarWish(spec=_forced(wish, form.syntax, before), field="tools")


def schema_wishes(wish: ToolWish) -> Iterator[GrammarWish]:
    """Every schema that an answer is held to, so that an error names its tool."""
    for index, tool in enumerate(wish.offered):
        function = _function(tool)
        held = wish.choice in FORCED or function.get("strict")
        if held and wish.name in (None, function["name"]) and function.get("parameters"):
            text = msgspec.json.encode(function["parameters"]).decode()
            where = f"tools[{index}]{wish.inside}.{wish.schema}"
            yield GrammarWish(spec=GrammarSpec("json_schema", text), field=where)


def _forced(wish: ToolWish, syntax: CallSyntax, before: list[Part]) -> GrammarSpec:
    """Calls and nothing else behind `before`."""
    parts = [
        *before,
        *([text_part(syntax.begin)] if syntax.begin else ()),
        {
            "type": "tags_with_separator",
            "tags": [
                tag_part(
                    syntax.before_name + name + syntax.after_name,
                    schema_part(schema),
                    syntax.after_arguments,
                )
                for name, schema in _schemas(wish)
            ],
            "separator": syntax.between or "",
            "at_least_one": True,
            "stop_after_first": wish.choice == "named"
            or not wish.parallel
            or syntax.between is None,
        },
        *([text_part(syntax.end)] if syntax.end else ()),
    ]
    return spec_of(*parts)


def _free(wish: ToolWish, form: ToolFormat) -> GrammarSpec:
    """Any text, in which calls follow their schemas from their first marker on."""
    syntax = form.syntax
    begin = syntax.begin + syntax.before_name
    trigger = next((one for one in form.markers if begin.startswith(one)), begin)
    end = syntax.after_arguments + syntax.end
    tags = [
        tag_part(begin + name + syntax.after_name, schema_part(schema), end)
        for name, schema in _schemas(wish)
    ]
    return spec_of(triggered_part(tags, [trigger], only_one=not wish.parallel))


def _schemas(wish: ToolWish) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Tools that may be called, and what their arguments are held to."""
    for tool in wish.offered:
        function = _function(tool)
        held = wish.choice in FORCED or function.get("strict")
        if wish.name in (None, function["name"]):
            yield function["name"], (function.get("parameters") if held else None) or _ANYTHING


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tool["function"]
    return found
