"""Whether the entries of a `oneOf` exclude each other, so that it is the same as `anyOf`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any
from urllib.parse import unquote

_DEPTH = 8
"""References that are followed one after the other, at most."""


class Definitions:
    """The schemas of one document, by `$ref`."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self.references = frozenset(_references(root))

    def resolve(self, schema: Any) -> dict[str, Any]:
        """The schema itself, or where its `$ref` leads; {} where that cannot be told."""
        for _ in range(_DEPTH):
            if not isinstance(schema, dict):
                return {}
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = self._at(reference)
        return {}

    def _at(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            return None
        found: Any = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _references(one)


def apart(entries: list[Any], definitions: Definitions) -> tuple[int, int] | None:
    """None where no document is valid for two entries; else two that could not be told apart."""
    resolved = [definitions.resolve(entry) for entry in entries]
    for (i, first), (j, second) in combinations(enumerate(resolved), 2):
        if not _disjoint(first, second, definitions, _DEPTH):
            return i, j
    return None


def _disjoint(a: dict[str, Any], b: dict[str, Any], definitions: Definitions, depth: int) -> bool:
    if depth == 0:
        return False
    first, second = _types(a), _types(b)
    if first is not None and second is not None and not first & second:
        return True
    values, others = _values(a), _values(b)
    if values is not None and others is not None:
        return not values & others
    shared = (first or {"?"}) & (second or {"?"})
    return shared == {"object"} and any(
        _disjoint(
            _property(a, name, definitions), _property(b, name, definitions), definitions, depth - 1
        )
        for name in _required(a) & _required(b)
    )


def _types(schema: dict[str, Any]) -> set[str] | None:
    """The JSON types that can be valid, integers among the numbers; None where all can."""
    kind = schema.get("type")
    if kind is None:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else None
        values = [schema["const"]] if "const" in schema else values
        return None if values is None else {_type_of(value) for value in values}
    names = kind if isinstance(kind, list) else [kind]
    return {"number" if name == "integer" else str(name) for name in names}


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    names: dict[type, str] = {str: "string", dict: "object", list: "array"}
    return names.get(type(value), "number")


def _values(schema: dict[str, Any]) -> set[str] | None:
    """The only values that can be valid, each as text; None where they are not listed."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or any(isinstance(value, dict | list) for value in values):
        return None
    return {_spelled(value) for value in values}


def _spelled(value: Any) -> str:
    """Equal for equal values: 1 and 1.0 are one number, true is none."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)


def _required(schema: dict[str, Any]) -> set[str]:
    required = schema.get("required")
    return {str(name) for name in required} if isinstance(required, list) else set()


def _property(schema: dict[str, Any], name: str, definitions: Definitions) -> dict[str, Any]:
    properties = schema.get("properties")
    return definitions.resolve(properties.get(name)) if isinstance(properties, dict) else {}
