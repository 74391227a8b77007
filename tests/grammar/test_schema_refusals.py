"""What a grammar cannot enforce is refused, with the JSON pointer of where it stands."""

from __future__ import annotations

import json

import pytest
from schema_samples import INTEGER, STRING, closed

from anychip.grammar.errors import GrammarError
from anychip.grammar.json_schema import json_source, llguidance_complaint
from anychip.grammar.json_text import read_json
from anychip.grammar.keywords import REFUSED, WITHOUT_EFFECT
from anychip.grammar.limits import GrammarLimits
from anychip.grammar.schema import clean_schema
from anychip.request import GrammarSpec


def refusal(schema) -> GrammarError:
    with pytest.raises(GrammarError) as caught:
        clean_schema(schema)
    return caught.value


PLACES = {
    "": lambda part: part,
    "/properties/a": lambda part: {"properties": {"a": part}},
    "/$defs/x": lambda part: {"$defs": {"x": part}, "$ref": "#/$defs/x"},
    "/items/anyOf/1": lambda part: {"items": {"anyOf": [STRING, part]}},
    "/prefixItems/0/additionalProperties": lambda part: {
        "prefixItems": [{"additionalProperties": part}]
    },
    "/patternProperties/~1a~0/allOf/0": lambda part: {
        "patternProperties": {"/a~": {"allOf": [part]}}
    },
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("keyword", REFUSED)
def test_an_unsupported_keyword_is_refused_where_it_stands(keyword, place):
    error = refusal(PLACES[place]({keyword: {"not": "looked at"}}))
    assert error.pointer == f"{place}/{keyword}"
    assert keyword in error.text


@pytest.mark.parametrize("keyword", WITHOUT_EFFECT)
def test_a_keyword_that_says_nothing_is_left_out(keyword):
    assert clean_schema({"type": "array", keyword: WITHOUT_EFFECT[keyword]}) == {"type": "array"}


def test_an_unknown_keyword_is_refused_with_the_nearest():
    error = refusal({"properties": {"a": {"minLenght": 3}}})
    assert error.pointer == "/properties/a/minLenght"
    assert "minLength" in error.text


def test_annotations_and_extensions_are_left_out():
    schema = {"title": "T", "description": "D", "default": 1, "x-order": 3, "type": "integer"}
    assert clean_schema(schema) == INTEGER


BROKEN = {
    "/type": {"type": "text"},
    "/enum": {"enum": []},
    "/required": {"required": ["a", 1]},
    "/pattern": {"pattern": "(?=a)"},
    "/format": {"type": "string", "format": "idn-email"},
    "/$ref": {"$ref": "https://example.com/schema"},
    "/minLength": {"minLength": -1},
    "/maxItems": {"maxItems": 1.5},
    "/minimum": {"minimum": "3"},
    "/exclusiveMinimum": {"minimum": 3, "exclusiveMinimum": True},
    "/minProperties": {"required": ["a"], "minProperties": 3},
    "/const": {"const": 2**53 + 1},
    "/enum/1/a": {"enum": [1, {"a": -(2**60)}]},
    "/anyOf": {"anyOf": []},
    "/anyOf/1": {"anyOf": [{}, 3]},
    "/properties": {"properties": []},
    "/items/1": {"items": [{}, "x"]},
    "/patternProperties/(a)\\1": {"patternProperties": {"(a)\\1": {}}},
    "/oneOf": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
}


@pytest.mark.parametrize("pointer", BROKEN)
def test_a_value_of_the_wrong_form_is_refused_where_it_stands(pointer):
    assert refusal(BROKEN[pointer]).pointer == pointer


OVERLAPPING = [
    [{"type": "string"}, {"type": ["string", "null"]}],
    [{"const": 1}, {"const": 1.0}],
    [{"enum": ["a", "b"]}, {"enum": ["b"]}],
    [closed({"k": {"const": "a"}}), closed({"k": {"const": "b"}})],  # k may be left out
    [{}, {"type": "null"}],
    [{"const": {"a": 1}}, {"const": {"a": 1.0}}],
]
APART = [
    [{"const": 1}, {"const": 2}, {"const": True}, {"type": "string"}],
    [{"enum": ["a"]}, {"enum": ["b", "c"]}],
    [closed({"k": {"const": "a"}}, "k"), closed({"k": {"enum": ["b", "c"]}}, "k")],
    [
        closed({"k": closed({"n": INTEGER}, "n")}, "k"),
        closed({"k": closed({"n": STRING}, "n")}, "k"),
    ],
]


@pytest.mark.parametrize("entries", OVERLAPPING)
def test_oneof_whose_entries_overlap_is_refused(entries):
    error = refusal({"items": {"oneOf": entries}})
    assert error.pointer == "/items/oneOf"
    assert "entries 0 and 1" in error.text


@pytest.mark.parametrize("entries", APART)
def test_oneof_whose_entries_exclude_each_other_is_anyof(entries):
    assert set(clean_schema({"oneOf": entries})) == {"anyOf"}


LATER = {
    "/properties/a/minProperties": {
        "properties": {
            "a": {"type": "object", "minProperties": 1, "properties": {"x": {}, "y": {}}}
        }
    },
    "/$defs/d~1e/minLength": {
        "$defs": {"d/e": {"type": "string", "minLength": 3, "maxLength": 2}},
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/d~1e"}},
        "required": ["n"],
    },
    "/items/pattern": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "pattern": "a$b"},
    },
}


@pytest.mark.parametrize("pointer", LATER)
def test_what_the_library_refuses_is_found_in_the_schema(compiler, pointer):
    spec = GrammarSpec("json_schema", json.dumps(LATER[pointer]))
    with pytest.raises(GrammarError) as caught:
        compiler.compile(spec)
    assert (caught.value.pointer or compiler.backend.complaint(spec)) == pointer


def test_nothing_is_found_in_a_good_schema():
    assert llguidance_complaint(json_source(closed({"a": INTEGER}, "a"), True)) is None


TEXTS = {
    '{"pattern": "a\\u0000"}': ("NUL", "/pattern"),
    '{"properties": {"\\u0000": {}}}': ("NUL", "/properties/\0"),
    '{"const": ["x", "\\ud800"]}': ("surrogate", "/const/1"),
    '{"const": 1e999}': ("too large", "/const"),
    '{"const": NaN}': ("NaN", None),
    '{"type": "object"': ("not valid JSON", None),
    "[" * 100_000: ("nested deeper", None),
    '{"a":' * 129 + "1" + "}" * 129: ("nested deeper", None),
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:40])
def test_a_text_that_is_no_usable_json_is_refused(text):
    reason, pointer = TEXTS[text]
    with pytest.raises(GrammarError, match=reason) as caught:
        read_json(text, "the schema", GrammarLimits())
    assert caught.value.pointer == pointer


def test_brackets_in_strings_are_no_nesting():
    assert read_json(json.dumps("[{" * 500 + '"'), "the schema", GrammarLimits())


@pytest.mark.parametrize("schema", [3, "x", [], None, False])
def test_a_schema_is_an_object(schema):
    refusal(schema)
