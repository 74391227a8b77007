"""What xgrammar would pass over in a schema is refused with its JSON pointer. Needs no xgrammar."""

from __future__ import annotations

import pytest
from schema_samples import INTEGER, STRING, closed

from anychip.grammar.errors import GrammarError
from anychip.grammar.keywords import REFUSED
from anychip.grammar.xgrammar_schema import prepare

ONE_PATTERN = {"^a": INTEGER}
PASSED_OVER = {
    "/minimum": {"enum": [1, 2], "minimum": 2},
    "/enum": {"const": 1, "enum": [1]},
    "/type": {"anyOf": [INTEGER], "type": "integer"},
    "/properties": {"$ref": "#/$defs/a", "$defs": {"a": {}}, "properties": {}},
    "/allOf": {"allOf": [INTEGER, {"minimum": 3}]},
    "/items/$id": {"items": {"$id": "http://x/y"}},
    "/items/$ref": {"items": {"$ref": "#num"}, "$defs": {"n": {"$anchor": "num"}}},
    "/anyOf/0/$ref": {"anyOf": [{"$ref": "#/const"}], "$defs": {"const": {}}},
    "/properties/a/$ref": {
        "properties": {"a": {"$ref": "#/properties/b/enum/0"}, "b": {"enum": [{"not": {}}]}}
    },
    "/properties/a": {"properties": {"a": False}},
    "/prefixItems/0": {"prefixItems": [False]},
    "/items": {"items": [INTEGER]},
    "/prefixItems": {"prefixItems": [INTEGER, STRING], "maxItems": 1},
    "/minItems": {"prefixItems": [INTEGER], "items": False, "minItems": 2},
    "/maxLength": {"type": "string", "pattern": "a", "maxLength": 3},
    "/minLength": {"type": "string", "format": "date", "minLength": 3},
    "/format": {"type": "string", "format": "date", "pattern": "a"},
    "/pattern": {"type": "string", "pattern": r"\p{L}"},
    "/patternProperties/\\p{L}": {"patternProperties": {"\\p{L}": {}}},
    "/patternProperties": {"patternProperties": {"^a": INTEGER, "a$": STRING}},
    "/required": {"patternProperties": ONE_PATTERN, "required": ["a"]},
    "/properties/é": {"type": "object", "properties": {"é": INTEGER}},
    "/properties/a~1b": {"type": "object", "properties": {"a/b": INTEGER}},
    '/properties/"': {"type": "object", "properties": {'"': INTEGER}, "required": ['"']},
    "/maxProperties": {**closed({"a": INTEGER, "b": INTEGER}, "a"), "maxProperties": 1},
    "/minProperties": {**closed({"a": INTEGER}, "a"), "minProperties": 2},
    "/multipleOf": {"type": "number", "multipleOf": 0.5},
    "/exclusiveMinimum": {"type": "number", "exclusiveMinimum": 1e-7},
    "/maximum": {"type": "number", "maximum": 1e12},
}


@pytest.mark.parametrize("pointer", PASSED_OVER)
def test_what_would_be_passed_over_is_refused_where_it_stands(pointer):
    with pytest.raises(GrammarError) as caught:
        prepare(PASSED_OVER[pointer])
    assert caught.value.pointer == pointer


EMPTY = {
    "a closed object": closed({}, "a"),
    "lengths": {"type": "string", "minLength": 3, "maxLength": 2},
    "items": {"type": "array", "minItems": 3, "maxItems": 2},
    "integers": {"type": "integer", "minimum": 0.5, "maximum": 0.75},
    "open integers": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    "numbers": {"type": "number", "minimum": 1, "exclusiveMaximum": 1},
    "multiples": {"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 6},
    "an enum": {"type": "string", "enum": [1, None]},
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_schema_without_a_document_is_refused(name):
    with pytest.raises(GrammarError) as caught:
        prepare({"properties": {"p": EMPTY[name]}})
    assert (caught.value.pointer or "").startswith("/properties/p")


@pytest.mark.parametrize("value", [0, -3, 1.5, 1025])
def test_a_multiple_that_xgrammar_drops_is_refused(value):
    with pytest.raises(GrammarError) as caught:
        prepare({"type": "integer", "multipleOf": value})
    assert caught.value.pointer == "/multipleOf"


@pytest.mark.parametrize("bounds", [{"minimum": 0}, {"minimum": 0, "maximum": 20_000}])
def test_a_multiple_with_one_bound_or_far_apart_is_refused(bounds):
    with pytest.raises(GrammarError, match="both bounds or none"):
        prepare({"type": "integer", "multipleOf": 7, **bounds})


@pytest.mark.parametrize("keyword", REFUSED)
def test_the_keywords_that_no_backend_enforces_are_refused_too(keyword):
    with pytest.raises(GrammarError) as caught:
        prepare({"items": {keyword: {"not": "looked at"}}})
    assert caught.value.pointer == f"/items/{keyword}"


def prepared(schema):
    return prepare(schema).schema


def test_keywords_of_other_types_say_nothing():
    assert prepared({"type": "null", "minLength": 3, "pattern": "x", "required": ["a"]}) == {
        "type": "null"
    }


def test_without_a_type_each_type_is_named():
    found = prepared({"minimum": 3})
    assert found["type"] == ["null", "boolean", "number", "string", "array", "object"]
    assert found["minimum"] == 3


def test_a_required_name_that_is_not_listed_is_listed():
    found = prepared({"type": "object", "required": ["x"], "additionalProperties": INTEGER})
    assert found["properties"] == {"x": INTEGER} and found["required"] == ["x"]


def test_values_are_those_of_the_type():
    schema = {"type": ["integer", "null"], "enum": [1, 1.0, 1.5, True, None, "a", [], {}]}
    assert prepared(schema) == {"enum": [1, 1.0, None]}


def test_bounds_of_integers_are_whole_and_the_tightest():
    schema = {"type": "integer", "minimum": 0.5, "exclusiveMinimum": 3, "exclusiveMaximum": 7.5}
    assert prepared(schema) == {"type": "integer", "minimum": 4, "maximum": 7}


def test_a_pattern_is_a_marker_that_no_other_string_has():
    found = prepare(closed({"a": {"type": "string", "pattern": "x"}, "b": {"format": "uuid"}}))
    markers = [found.schema["properties"][name]["pattern"] for name in "ab"]
    assert markers == sorted(found.strings) == ["marker0", "marker1"]
