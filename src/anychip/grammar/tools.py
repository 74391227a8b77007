"""Grammars of tool calls, for whoever knows how a family of models writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anychip.grammar.json_text import write_json
from anychip.request import GrammarSpec

_ANYTHING: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class CallTag:
    """How one tool's call is written: `begin`, a JSON value by `schema`, `end`.

    Special tokens are spelled out (`<|tool_call|>`); `begin` begins with one of the triggers.
    """

    begin: str
    schema: Mapping[str, Any]
    end: str


def tool_calls(
    tags: Sequence[CallTag],
    triggers: Sequence[str],
    *,
    must_call: bool = False,
    only_one: bool = False,
    any_whitespace: bool = True,
) -> GrammarSpec:
    """Text freely until a trigger, then one of the tags to its end, and so on.

    must_call: a call comes first, with no text before it. only_one: nothing follows the first call.
    triggers: each a text, or the name of one special token. Raises ValueError without tags.
    """
    if not tags or not triggers:
        raise ValueError("tool calls need at least one tag and one trigger")
    written = {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": list(triggers),
            "tags": [_tag(tag) for tag in tags],
            "at_least_one": must_call,
            "stop_after_first": only_one,
        },
    }
    return GrammarSpec("structural_tag", write_json(written), any_whitespace)


def call_schema(
    tools: Mapping[str, Mapping[str, Any] | None],
    *,
    name_key: str = "name",
    arguments_key: str = "arguments",
) -> dict[str, Any]:
    """A schema of one call, `{"name": ..., "arguments": {...}}`, of any of the tools.

    tools: the schema of each tool's arguments, None for any object.
    """
    return _any_call(tools, "#/anyOf", name_key, arguments_key)


def one_call(
    name: str,
    schema: Mapping[str, Any] | None,
    name_key: str = "name",
    arguments_key: str = "arguments",
) -> dict[str, Any]:
    """A schema of one call of the tool `name`. References inside of its schema still hold."""
    arguments = dict(schema or _ANYTHING)
    prefix = f"#/properties/{arguments_key.replace('~', '~0').replace('/', '~1')}"
    return {
        "type": "object",
        "properties": {name_key: {"const": name}, arguments_key: _moved(arguments, prefix)},
        "required": [name_key, arguments_key],
        "additionalProperties": False,
    }


def calls_list(
    tools: Mapping[str, Mapping[str, Any] | None],
    *,
    most: int | None = None,
    name_key: str = "name",
    arguments_key: str = "arguments",
) -> dict[str, Any]:
    """A schema of a list of one to `most` calls (None: without end)."""
    items = _any_call(tools, "#/items/anyOf", name_key, arguments_key)
    listed: dict[str, Any] = {"type": "array", "items": items, "minItems": 1}
    return listed if most is None else {**listed, "maxItems": most}


def _any_call(
    tools: Mapping[str, Mapping[str, Any] | None], place: str, name_key: str, arguments_key: str
) -> dict[str, Any]:
    calls = [one_call(name, schema, name_key, arguments_key) for name, schema in tools.items()]
    return {"anyOf": [_moved(call, f"{place}/{at}") for at, call in enumerate(calls)]}


def after_text(spec: GrammarSpec, end: str) -> GrammarSpec:
    """Any text up to the first `end` (a text or special tokens), then what `spec` says.

    For models that reason before they answer: `end` is what closes the reasoning.
    Raises ValueError for a kind that cannot stand inside of a structural tag (lark).
    """
    reasoning = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": end}
    written = {
        "type": "structural_tag",
        "format": {"type": "sequence", "elements": [reasoning, _format(spec)]},
    }
    return GrammarSpec("structural_tag", write_json(written), spec.any_whitespace)


def _tag(tag: CallTag) -> dict[str, Any]:
    content = {"type": "json_schema", "json_schema": tag.schema}
    return {"type": "tag", "begin": tag.begin, "content": content, "end": tag.end}


def _format(spec: GrammarSpec) -> dict[str, Any]:
    """A specification as a part of a structural tag."""
    if spec.kind == "json_schema":
        return {"type": "json_schema", "json_schema": json.loads(spec.text)}
    if spec.kind == "json_object":
        return {"type": "json_schema", "json_schema": _ANYTHING}
    if spec.kind in ("regex", "ebnf"):
        regex = spec.kind == "regex"
        name, field = ("regex", "pattern") if regex else ("grammar", "grammar")
        return {"type": name, field: spec.text}
    if spec.kind == "choice":
        texts = [{"type": "const_string", "value": one} for one in json.loads(spec.text)]
        return {"type": "or", "elements": texts}
    if spec.kind == "structural_tag":
        return _tag_format(json.loads(spec.text))
    raise ValueError(f"a {spec.kind} grammar cannot follow other text")


def _tag_format(value: dict[str, Any]) -> dict[str, Any]:
    """A structural tag of either form, as the newer form has it."""
    if "format" in value:
        return dict(value["format"])
    tags = [_tag(CallTag(one["begin"], one["schema"], one["end"])) for one in value["structures"]]
    return {"type": "triggered_tags", "triggers": value["triggers"], "tags": tags}


def _moved(value: Any, prefix: str) -> Any:
    """A schema that has become a part of another at `prefix`, its references led there."""
    if isinstance(value, list):
        return [_moved(one, prefix) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: prefix + inner[1:]
        if key == "$ref" and isinstance(inner, str) and (inner == "#" or inner[:2] == "#/")
        else _moved(inner, prefix)
        for key, inner in value.items()
    }
