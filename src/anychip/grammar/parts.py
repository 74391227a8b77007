"""Grammars put together: parts of a longer answer, as formats of a structural tag."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anychip.grammar.json_text import write_json
from anychip.request import GrammarSpec

Part = dict[str, Any]
"""One format of a structural tag, see docs/structured_output.md. Special tokens are spelled out."""


def text_part(value: str) -> Part:
    """Exactly this text."""
    return {"type": "const_string", "value": value}


def schema_part(schema: Mapping[str, Any]) -> Part:
    """One JSON document; its references lead into the schema itself."""
    return {"type": "json_schema", "json_schema": schema}


def tag_part(begin: str, content: Part, end: str) -> Part:
    """Content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def triggered_part(tags: Sequence[Part], triggers: Sequence[str], *, only_one: bool) -> Part:
    """Text freely until a trigger, then one of the tags to its end, and so on.

    triggers: each a text, or the name of one special token; every tag begins with one of them.
    only_one: nothing follows the first tag.
    """
    return {
        "type": "triggered_tags",
        "triggers": list(triggers),
        "tags": list(tags),
        "stop_after_first": only_one,
    }


def spec_of(*parts: Part, any_whitespace: bool = True) -> GrammarSpec:
    """One part after the other, and nothing else."""
    whole = parts[0] if len(parts) == 1 else {"type": "sequence", "elements": list(parts)}
    text = write_json({"type": "structural_tag", "format": whole})
    return GrammarSpec("structural_tag", text, any_whitespace)


def part_of(spec: GrammarSpec) -> Part | None:
    """A checked grammar as a part; None for Lark, which is always the whole answer."""
    read = _PARTS.get(spec.kind)
    return None if read is None else read(spec.text)


def _choice(text: str) -> Part:
    return {"type": "or", "elements": [text_part(one) for one in json.loads(text)]}


def _tag(text: str) -> Part:
    """A structural tag of either form, as the newer form has it."""
    value = json.loads(text)
    if "format" in value:
        return dict(value["format"])
    tags = [
        tag_part(one["begin"], schema_part(one["schema"]), one["end"])
        for one in value["structures"]
    ]
    return triggered_part(tags, value["triggers"], only_one=False)


_PARTS: Mapping[str, Callable[[str], Part]] = {
    "json_schema": lambda text: schema_part(json.loads(text)),
    "json_object": lambda text: schema_part({"type": "object"}),
    "regex": lambda text: {"type": "regex", "pattern": text},
    "ebnf": lambda text: {"type": "grammar", "grammar": text},
    "choice": _choice,
    "structural_tag": _tag,
}
