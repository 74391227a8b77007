"""A client's JSON schema as xgrammar takes it: what xgrammar would pass over is refused.

xgrammar reads one form of a schema ($ref, const, enum, anyOf, oneOf, allOf or a type), and nothing
that stands beside it; some keywords it only warns about. Strings with a pattern or a format are
marked, and written by us: its own read other texts there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from anychip.grammar import keywords as known
from anychip.grammar.ebnf_tree import Node
from anychip.grammar.ebnf_writer import in_json, written
from anychip.grammar.errors import GrammarError, step
from anychip.grammar.formats import FORMAT_PATTERNS
from anychip.grammar.regex_reader import read_regex
from anychip.grammar.schema import clean_schema
from anychip.grammar.unions import Definitions, apart
from anychip.grammar.xgrammar_numbers import integer_bounds, number_bounds

_FORMS = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
_TYPES = ("null", "boolean", "number", "string", "array", "object")
_KINDS: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
_OUT = "; --grammar-backend llguidance does"


@dataclass
class Prepared:
    """The schema that xgrammar gets, and by each marker in it the EBNF of what stands there.

    A marker is the pattern of a string, or of a name.
    """

    schema: dict[str, Any]
    strings: dict[str, str] = field(default_factory=dict)


def prepare(schema: Any) -> Prepared:
    """GrammarError, with its pointer, for what would not be enforced."""
    clean_schema(schema)
    root = schema if isinstance(schema, dict) else {}
    preparer = _Preparer(root)
    found = preparer.schema(root, "")
    preparer.check_references()
    return Prepared(found, preparer.strings)


class _Preparer:
    def __init__(self, root: dict[str, Any]) -> None:
        self.strings: dict[str, str] = {}
        self._definitions = Definitions(root)
        self._by_place = any("/oneOf" in ref for ref in self._definitions.references)
        self._places: set[str] = set()
        self._references: list[tuple[str, str]] = []

    def check_references(self) -> None:
        """GrammarError for a `$ref` that leads to no schema, where nothing was looked at."""
        for reference, pointer in self._references:
            target = unquote(reference[1:])
            if target not in self._places:
                raise GrammarError(
                    f"$ref {reference!r:.80} leads to no schema that xgrammar finds; refer to a "
                    "place in the schema, as #/$defs/name",
                    pointer,
                )

    def schema(self, value: Any, pointer: str) -> dict[str, Any]:
        self._places.add(pointer)
        if isinstance(value, bool):
            return {} if value else _refuse("false is not supported here by xgrammar", pointer)
        for name in ("$id", "id"):
            if pointer and isinstance(value.get(name), str):
                _refuse(f"xgrammar does not follow {name} inside of a schema", step(pointer, name))
        said = {name: one for name, one in value.items() if name in known.ENFORCED}
        out = {
            name: self._map(said.pop(name), step(pointer, name))
            for name in list(said)
            if name in known.DEFINITIONS
        }
        form = next((name for name in _FORMS if name in said), None)
        more = self._typed(said, pointer) if form is None else self._form(form, said, pointer)
        return {**out, **more}

    def _map(self, value: dict[str, Any], pointer: str) -> dict[str, Any]:
        return {name: self.schema(one, step(pointer, name)) for name, one in value.items()}

    def _form(self, form: str, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        values = form in ("const", "enum")
        for name in said:
            if name != form and not (values and name == "type"):
                _refuse(f"xgrammar does not enforce {name} beside {form}", step(pointer, name))
        value, place = said[form], step(pointer, form)
        if form == "$ref":
            self._references.append((value, place))
            return {form: value}
        if values:
            return {"enum": _of_types(value if form == "enum" else [value], said, place)}
        if form == "allOf" and len(value) > 1:
            _refuse("xgrammar does not enforce allOf with more than one entry", place)
        if form == "oneOf" and apart(value, self._definitions) is not None:
            raise GrammarError("entries of oneOf may both be valid; use anyOf", place)
        if form == "oneOf" and not self._by_place:
            form = "anyOf"  # the same here, and it does not warn
        return {form: [self.schema(one, step(place, at)) for at, one in enumerate(value)]}

    def _typed(self, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        if not said:
            return {}
        names = said.get("type", _TYPES)
        names = list(dict.fromkeys([names] if isinstance(names, str) else names))
        if "number" in names and "integer" in names:
            names.remove("integer")
        out: dict[str, Any] = {"type": names if len(names) > 1 else names[0]}
        for name in names:
            out.update(self._of_type(name, said, pointer))
        return out

    def _of_type(self, name: str, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        """What a type's own keywords say; those of other types say nothing about it."""
        if name == "integer":
            return integer_bounds(said, pointer)
        if name == "number":
            return number_bounds(said, pointer)
        if name == "string":
            return self._string(said, pointer)
        if name == "array":
            return self._array(said, pointer)
        return self._object(said, pointer) if name == "object" else {}

    def _string(self, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        lengths: dict[str, Any] = {
            name: said[name] for name in ("minLength", "maxLength") if name in said
        }
        form = next((name for name in ("pattern", "format") if name in said), None)
        _check_order(said.get("minLength", 0), said.get("maxLength"), step(pointer, "minLength"))
        if form is None:
            return lengths
        for name in [name for name in ("format", *lengths) if name in said and name != form]:
            _refuse(f"{name} beside {form} is not supported with xgrammar", step(pointer, name))
        if form == "format":
            return {"pattern": self._mark(read_regex(FORMAT_PATTERNS[said[form]]), pointer)}
        place = step(pointer, form)
        return {"pattern": self._mark(read_regex(said[form], place, anywhere=True), place)}

    def _mark(self, node: Node, pointer: str) -> str:
        marker = f"marker{len(self.strings)}"
        self.strings[marker] = written(in_json(node, pointer))
        return marker

    def _array(self, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        items, place = said.get("items", True), step(pointer, "items")
        if isinstance(items, list):
            _refuse(
                "a list of items is not supported with xgrammar; use prefixItems and items", place
            )
        out: dict[str, Any] = {
            name: said[name] for name in ("minItems", "maxItems") if name in said
        }
        first = said.get("prefixItems", [])
        _check_order(out.get("minItems", 0), out.get("maxItems"), step(pointer, "minItems"))
        _check_order(len(first), out.get("maxItems"), step(pointer, "prefixItems"))
        if items is False:
            _check_order(out.get("minItems", 0), len(first), step(pointer, "minItems"))
        if first:
            at = step(pointer, "prefixItems")
            out["prefixItems"] = [self.schema(one, step(at, n)) for n, one in enumerate(first)]
        return {**out, "items": False if items is False else self.schema(items, place)}

    def _object(self, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        counts: dict[str, Any] = {
            name: said[name] for name in ("minProperties", "maxProperties") if name in said
        }
        place = step(pointer, "additionalProperties")
        others: Any = said.get("additionalProperties", True)
        if others is not False:
            others = self.schema(others, place)
        if "patternProperties" in said:
            return {**counts, **self._pattern_properties(said, pointer)}
        required = list(dict.fromkeys(said.get("required", [])))
        properties = self._map(said.get("properties", {}), step(pointer, "properties"))
        for name in required:
            if name not in properties and others is False:
                raise GrammarError(
                    f"{name!r:.60} is required and not allowed", step(pointer, "required")
                )
            properties.setdefault(name, others)
        if others is not False:
            _check_names(properties, pointer)
        _check_counts(counts, required, properties, others, pointer)
        return {
            **counts,
            "properties": properties,
            "required": required,
            "additionalProperties": others,
        }

    def _pattern_properties(self, said: dict[str, Any], pointer: str) -> dict[str, Any]:
        """Names by one pattern; those that others would allow are not generated."""
        place = step(pointer, "patternProperties")
        patterns = said["patternProperties"]
        for name in ("properties", "required"):
            if said.get(name):
                _refuse(
                    f"{name} beside patternProperties is not supported with xgrammar",
                    step(pointer, name),
                )
        if len(patterns) != 1:
            _refuse("more than one pattern of names is not supported with xgrammar", place)
        ((pattern, value),) = patterns.items()
        at = step(place, pattern)
        marker = self._mark(read_regex(pattern, at, anywhere=True), at)
        return {
            "patternProperties": {marker: self.schema(value, at)},
            "additionalProperties": False,
        }


def _refuse(what: str, pointer: str) -> Any:
    raise GrammarError(what + _OUT, pointer)


def _of_types(values: list[Any], said: dict[str, Any], pointer: str) -> list[Any]:
    """Those values that `type` allows as well."""
    names = said.get("type")
    if names is None:
        return values
    listed = [names] if isinstance(names, str) else names
    kept = [value for value in values if any(_is_of(value, name) for name in listed)]
    if not kept:
        raise GrammarError(f"no value is of the type {names!r:.60}", pointer)
    return kept


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool) or value is None:
        return name == ("null" if value is None else "boolean")
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, _KINDS.get(name, ()))


def _check_order(least: int, most: int | None, pointer: str) -> None:
    if most is not None and least > most:
        raise GrammarError(f"no value fits: at least {least} and at most {most}", pointer)


def _check_names(properties: dict[str, Any], pointer: str) -> None:
    """xgrammar keeps other names apart from the listed ones by their plain spelling alone."""
    for name in properties:
        if not name.isascii() or not name.isprintable() or set(name) & set('"\\/'):
            _refuse(
                f"the name {name!r:.60} in an object that takes other names is not supported with "
                "xgrammar; close the object by additionalProperties false. That",
                step(step(pointer, "properties"), name),
            )


def _check_counts(
    counts: dict[str, int],
    required: list[str],
    properties: dict[str, Any],
    others: Any,
    pointer: str,
) -> None:
    for name in counts:
        if set(properties) - set(required):
            _refuse(
                f"{name} where a property may be left out is not supported with xgrammar",
                step(pointer, name),
            )
    most = counts.get("maxProperties")
    if most is not None:
        _check_order(
            max(len(required), counts.get("minProperties", 0)), most, step(pointer, "maxProperties")
        )
    if others is False:
        _check_order(
            counts.get("minProperties", 0), len(properties), step(pointer, "minProperties")
        )
