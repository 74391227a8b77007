"""Grammars as parts of a longer answer: thoughts first, then what the call asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anychip.request import GrammarSpec
from anychip.text.answer import harmony
from anychip.text.answer.thinking import THINK, THINK_END

Part = dict[str, Any]
"""One format of a structural tag, see docs/structured_output.md."""


def text_part(value: str) -> Part:
    """Exactly this text."""
    return {"type": "const_string", "value": value}


def tag_part(begin: str, content: Part, end: str) -> Part:
    """Content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(parts: list[Part], *, any_whitespace: bool = True) -> GrammarSpec:
    """One part after the other, and nothing else."""
    written = {"type": "structural_tag", "format": {"type": "sequence", "elements": parts}}
    return GrammarSpec("structural_tag", msgspec.json.encode(written).decode(), any_whitespace)


_ANY: Part = {"type": "any_text"}
_SPACE: Part = {"type": "regex", "pattern": "\\s{0,4}"}
_ANALYSIS = f"{harmony.CHANNEL}analysis{harmony.MESSAGE}"
_FINAL = f"{harmony.CHANNEL}final{harmony.MESSAGE}"
_NEXT = f"{harmony.END}{harmony.START}assistant"


def thoughts(reasoning: str, inside: bool | None, *, speaks: bool) -> list[Part]:
    """What may come before the answer itself where reasoning is read; nothing where it is not.

    reasoning, inside: as in `AnswerFormat`. speaks: the answer is said, not a call.
    """
    if reasoning == "gpt-oss":
        analysis = tag_part(_ANALYSIS, _ANY, _NEXT)
        return [{"type": "star", "content": analysis}, *([text_part(_FINAL)] if speaks else [])]
    if not reasoning or inside is False:
        return []
    if inside or reasoning == "deepseek-r1":
        return [_ANY, text_part(THINK_END), _SPACE]
    return [{"type": "optional", "content": tag_part(THINK, _ANY, THINK_END)}, _SPACE]


def part_of(spec: GrammarSpec) -> Part | None:
    """A grammar as a part; None for one that cannot be (Lark, and the older structural tags)."""
    read = _PARTS.get(spec.kind)
    return None if read is None else read(spec.text)


def _tag(text: str) -> Part | None:
    value = json.loads(text)
    inner = value.get("format") if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else None


def _choice(text: str) -> Part:
    return {"type": "or", "elements": [text_part(one) for one in json.loads(text)]}


_PARTS: Mapping[str, Callable[[str], Part | None]] = {
    "json_schema": lambda text: {"type": "json_schema", "json_schema": json.loads(text)},
    "json_object": lambda text: {"type": "json_schema", "json_schema": {"type": "object"}},
    "regex": lambda text: {"type": "regex", "pattern": text},
    "ebnf": lambda text: {"type": "grammar", "grammar": text},
    "choice": _choice,
    "structural_tag": _tag,
}
