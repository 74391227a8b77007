"""A client's JSON schema: each keyword enforced or refused with its JSON pointer."""

from __future__ import annotations

import difflib
from typing import Any
from urllib.parse import quote

from anychip.grammar import keywords as known
from anychip.grammar.errors import GrammarError, step
from anychip.grammar.json_text import check_exact
from anychip.grammar.patterns import check_pattern
from anychip.grammar.unions import Definitions, apart

_IN_REFERENCE = "#/%~!$&'()*+,;=:@?-._"


def clean_schema(schema: Any) -> dict[str, Any]:
    """The schema as llguidance takes it: what has no effect is left out, `oneOf` whose entries
    exclude each other has become `anyOf`. GrammarError for what could not be enforced."""
    if isinstance(schema, bool):
        schema = {} if schema else _refuse_false()
    if not isinstance(schema, dict):
        raise GrammarError("a JSON schema is an object, not " + _name(schema))
    cleaned = _Cleaner(schema).schema(schema, "")
    return dict(cleaned) if isinstance(cleaned, dict) else {}


def _refuse_false() -> dict[str, Any]:
    raise GrammarError("the schema is false: no document is valid")


class _Cleaner:
    def __init__(self, root: dict[str, Any]) -> None:
        self._definitions = Definitions(root)
        self._by_place = any("/oneOf" in ref for ref in self._definitions.references)

    def schema(self, schema: Any, pointer: str) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise GrammarError(f"a schema is an object, not {_name(schema)}", pointer)
        cleaned: dict[str, Any] = {}
        for keyword, value in schema.items():
            self._keyword(cleaned, schema, keyword, value, step(pointer, keyword))
        return cleaned

    def _keyword(
        self, into: dict[str, Any], schema: dict[str, Any], keyword: str, value: Any, pointer: str
    ) -> None:
        if keyword in known.ANNOTATIONS or _is_extension(keyword):
            if keyword in ("$schema", "$id", "id", "$anchor"):
                into[keyword] = value
        elif keyword in known.ENFORCED:
            self._enforced(into, schema, keyword, value, pointer)
        elif not _says_nothing(keyword, value):
            raise _refused(keyword, pointer)

    def _enforced(
        self, into: dict[str, Any], schema: dict[str, Any], keyword: str, value: Any, pointer: str
    ) -> None:
        if keyword in known.APPLIED_TO_MAP | known.DEFINITIONS:
            into[keyword] = self._map(keyword, value, pointer)
        elif keyword in known.APPLIED_TO_LIST or (keyword == "items" and isinstance(value, list)):
            self._list(into, schema, keyword, value, pointer)
        elif keyword in known.APPLIED_TO_SCHEMA:
            into[keyword] = self.schema(value, pointer)
        else:
            _check_value(schema, keyword, value, pointer)
            if keyword == "$ref":
                into[keyword] = quote(value, safe=_IN_REFERENCE)
            elif keyword != "format" or _about_strings(schema):
                into[keyword] = value

    def _map(self, keyword: str, value: Any, pointer: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise GrammarError(f"{keyword} must be an object, not {_name(value)}", pointer)
        if keyword == "patternProperties":
            for pattern in value:
                check_pattern(pattern, step(pointer, pattern))
        return {key: self.schema(inner, step(pointer, key)) for key, inner in value.items()}

    def _list(
        self, into: dict[str, Any], schema: dict[str, Any], keyword: str, value: Any, pointer: str
    ) -> None:
        if not isinstance(value, list):
            raise GrammarError(f"{keyword} must be a list, not {_name(value)}", pointer)
        if not value and keyword not in ("items", "prefixItems"):
            raise GrammarError(f"{keyword} must have an entry", pointer)
        inner = [self.schema(one, step(pointer, at)) for at, one in enumerate(value)]
        if keyword == "oneOf" and len(inner) > 1 and not self._by_place and "anyOf" not in schema:
            overlap = apart(value, self._definitions)
            if overlap is not None:
                first, second = overlap
                raise GrammarError(
                    f"entries {first} and {second} of oneOf may both be valid for one document, "
                    "which no grammar excludes; use anyOf, or give each entry a required property "
                    "with a const of its own",
                    pointer,
                )
            into["anyOf"] = inner
        else:
            into[keyword] = inner


def _refused(keyword: str, pointer: str) -> GrammarError:
    reason = known.REFUSED.get(keyword)
    if reason is not None:
        return GrammarError(f"the keyword {keyword} is not supported: {reason}", pointer)
    close = difflib.get_close_matches(keyword, sorted(known.ENFORCED | set(known.REFUSED)), n=1)
    hint = f"; the nearest is {close[0]}" if close else "; extensions begin with x-"
    return GrammarError(f"{keyword} is no keyword of JSON Schema{hint}", pointer)


def _check_value(schema: dict[str, Any], keyword: str, value: Any, pointer: str) -> None:
    if keyword in known.COUNTS:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise GrammarError(f"{keyword} must be a whole number from 0 on", pointer)
        check_exact(value, pointer)
        if keyword == "minProperties":
            _check_min_properties(schema, value, pointer)
    elif keyword in known.BOUNDS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GrammarError(f"{keyword} must be a number, not {_name(value)}", pointer)
        check_exact(value, pointer)
    else:
        _CHECKS[keyword](schema, value, pointer)


def _check_min_properties(schema: dict[str, Any], value: int, pointer: str) -> None:
    required = schema.get("required", ())
    most = len(set(required)) + 1 if isinstance(required, list) else 1
    if value > most:
        raise GrammarError(
            f"minProperties {value} is not supported with {most - 1} required properties: names "
            f"that are not listed may repeat; it may be at most {most}, or list them in required",
            pointer,
        )


def _check_type(schema: dict[str, Any], value: Any, pointer: str) -> None:
    names = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(n, str) or n not in known.TYPES for n in names):
        listed = ", ".join(sorted(known.TYPES))
        raise GrammarError(f"type must be one or a list of: {listed}", pointer)


def _check_enum(schema: dict[str, Any], value: Any, pointer: str) -> None:
    if not isinstance(value, list) or not value:
        raise GrammarError("enum must be a list with an entry", pointer)
    check_exact(value, pointer)


def _check_required(schema: dict[str, Any], value: Any, pointer: str) -> None:
    if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
        raise GrammarError("required must be a list of property names", pointer)


def _check_pattern(schema: dict[str, Any], value: Any, pointer: str) -> None:
    if not isinstance(value, str):
        raise GrammarError(f"pattern must be a string, not {_name(value)}", pointer)
    check_pattern(value, pointer)


def _check_format(schema: dict[str, Any], value: Any, pointer: str) -> None:
    if _about_strings(schema) and value not in known.FORMATS:
        listed = ", ".join(sorted(known.FORMATS))
        raise GrammarError(
            f"the format {value!r:.60} is not enforced here (known: {listed}); use pattern",
            pointer,
        )


def _check_reference(schema: dict[str, Any], value: Any, pointer: str) -> None:
    if not isinstance(value, str):
        raise GrammarError(f"$ref must be a string, not {_name(value)}", pointer)
    if not value.startswith("#"):
        raise GrammarError(
            f"$ref {value!r:.80} leads out of the schema; only references that begin with # do",
            pointer,
        )


def _check_const(schema: dict[str, Any], value: Any, pointer: str) -> None:
    check_exact(value, pointer)


_CHECKS = {
    "type": _check_type,
    "enum": _check_enum,
    "const": _check_const,
    "required": _check_required,
    "pattern": _check_pattern,
    "format": _check_format,
    "$ref": _check_reference,
}


def _about_strings(schema: dict[str, Any]) -> bool:
    """Whether a format says something: on numbers (int32, double) it is a note."""
    kind = schema.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _says_nothing(keyword: str, value: Any) -> bool:
    expected = known.WITHOUT_EFFECT.get(keyword)
    return expected is not None and type(value) is type(expected) and bool(value == expected)


def _is_extension(keyword: str) -> bool:
    return keyword.startswith("x-") and keyword not in known.REFUSED


def _name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
