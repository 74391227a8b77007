"""A client's JSON schema as llguidance takes it, and where in it a complaint belongs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import llguidance

from anychip.grammar.errors import step
from anychip.grammar.json_text import write_json
from anychip.grammar.keywords import APPLIED_TO_LIST, APPLIED_TO_MAP, APPLIED_TO_SCHEMA, DEFINITIONS
from anychip.grammar.schema import clean_schema

WHITESPACE = r"[ \n\r\t]{1,64}"
"""At one place, at most: a model that only writes spaces comes to an end."""
_ESCAPES = 'nrbtf\\"'
"""Without \\u: a property's name could be spelled twice, and the second time be another's."""
_ROOT = "x-root"
Refuses = Callable[[dict[str, Any]], bool]


def json_source(schema: Any, any_whitespace: bool) -> str:
    """The schema as JSON text with llguidance's options. GrammarError with a pointer."""
    options: dict[str, Any] = {"json_allowed_escapes": _ESCAPES}
    if any_whitespace:
        options["whitespace_pattern"] = WHITESPACE
    else:
        options["whitespace_flexible"] = False
    return write_json({**clean_schema(schema), "x-guidance": options})


def llguidance_complaint(source: str) -> str | None:
    """`find_complaint` of llguidance. source: what `json_source` wrote."""
    schema = json.loads(source)
    options = schema.pop("x-guidance")

    def refuses(part: dict[str, Any]) -> bool:
        text = write_json({**part, "x-guidance": options})
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text)
        return bool(llguidance.LLMatcher.validate_grammar(grammar))

    return find_complaint(schema, refuses)


def find_complaint(schema: dict[str, Any], refuses: Refuses) -> str | None:
    """The JSON pointer of the smallest part of a schema that a backend refuses, of a keyword where
    it is one; None where it refuses none."""
    probe = _Probe(schema, refuses)
    if not probe.refuses_at(""):
        return None
    pointer = ""
    while True:
        below = _schemas_below(schema, pointer)
        found = next(((at, one) for at, one in below if probe.refuses_at(at)), None)
        if found is None:
            break
        pointer, schema = found
    for keyword in sorted(schema, key="type".__eq__):  # without its type, much becomes valid
        rest = {name: value for name, value in schema.items() if name != keyword}
        if keyword not in DEFINITIONS and not probe.refuses(rest):
            return step(pointer, keyword)
    return pointer


class _Probe:
    """Compiles parts of a schema, with what they refer to."""

    def __init__(self, schema: dict[str, Any], refuses: Refuses) -> None:
        self._whole_refuses = refuses
        self._inner = _moved(schema)

    def refuses_at(self, pointer: str) -> bool:
        return self._refuses({"$ref": f"#/{_ROOT}{quote(pointer)}"})

    def refuses(self, part: dict[str, Any]) -> bool:
        return self._refuses(_moved(part))

    def _refuses(self, part: dict[str, Any]) -> bool:
        return self._whole_refuses({**part, _ROOT: self._inner})


def _moved(value: Any) -> Any:
    """The same with every reference leading into `_ROOT`."""
    if isinstance(value, list):
        return [_moved(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"#/{_ROOT}{inner[1:]}"
        if key == "$ref" and isinstance(inner, str) and inner[:2] in ("#", "#/")
        else _moved(inner)
        for key, inner in value.items()
    }


def _schemas_below(schema: dict[str, Any], pointer: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for keyword, value in schema.items():
        at = step(pointer, keyword)
        if keyword in APPLIED_TO_MAP | DEFINITIONS:
            found += [(step(at, key), one) for key, one in value.items()]
        elif keyword in APPLIED_TO_LIST or (isinstance(value, list) and keyword == "items"):
            found += [(step(at, index), one) for index, one in enumerate(value)]
        elif keyword in APPLIED_TO_SCHEMA:
            found.append((at, value))
    return [(at, one) for at, one in found if isinstance(one, dict)]
