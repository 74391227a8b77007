"""Schemas as people send them, and every kind of corner of what is enforced."""

from __future__ import annotations


def closed(properties, *required, **more):
    """An object with these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
PERSON = closed({"name": STRING, "age": {"type": "integer", "minimum": 0}}, "name", "age")
TREE = {
    "$defs": {
        "node": closed(
            {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "value",
        )
    },
    "$ref": "#/$defs/node",
}
LIST = {
    "$defs": {
        "list": {
            "anyOf": [
                {"type": "null"},
                closed({"head": STRING, "tail": {"$ref": "#/$defs/list"}}, "head", "tail"),
            ]
        }
    },
    "type": "object",
    "properties": {"list": {"$ref": "#/$defs/list"}},
    "required": ["list"],
}
EXPRESSION = {
    "definitions": {
        "e": {
            "oneOf": [
                closed({"kind": {"const": "number"}, "value": NUMBER}, "kind", "value"),
                closed(
                    {
                        "kind": {"const": "sum"},
                        "left": {"$ref": "#/definitions/e"},
                        "right": {"$ref": "#/definitions/e"},
                    },
                    "kind",
                    "left",
                    "right",
                ),
            ]
        }
    },
    "$ref": "#/definitions/e",
}
PETS = {
    "$defs": {
        "Cat": closed({"pet": {"const": "cat"}, "lives": INTEGER}, "pet", title="Cat"),
        "Dog": closed({"pet": {"const": "dog"}, "barks": {"type": "boolean"}}, "pet", title="Dog"),
    },
    "type": "object",
    "properties": {
        "pet": {
            "discriminator": {"propertyName": "pet", "mapping": {"cat": "#/$defs/Cat"}},
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        }
    },
    "required": ["pet"],
}

SCHEMAS = {
    # Objects.
    "object": {"type": "object"},
    "person": PERSON,
    "optional": closed({"a": STRING, "b": INTEGER, "c": {"type": "boolean"}}),
    "some required": closed({"a": STRING, "b": INTEGER, "c": STRING}, "c", "a"),
    "nested": closed({"p": PERSON, "q": closed({"r": PERSON}, "r")}, "p", "q"),
    "map of integers": {"type": "object", "additionalProperties": INTEGER},
    "known and others": {
        "type": "object",
        "properties": {"id": INTEGER},
        "required": ["id"],
        "additionalProperties": STRING,
    },
    "open object": {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
    "required without properties": {"type": "object", "required": ["x", "y"]},
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^n_[a-z]+$": INTEGER, "^s_[a-z]+$": STRING},
        "additionalProperties": False,
    },
    "at least one": {"type": "object", "minProperties": 1, "additionalProperties": INTEGER},
    "at most two": {"type": "object", "maxProperties": 2, "additionalProperties": STRING},
    "one or two more": {
        "type": "object",
        "properties": {"a": INTEGER},
        "required": ["a"],
        "minProperties": 2,
        "maxProperties": 3,
    },
    "empty object": {"type": "object", "maxProperties": 0},
    "unicode keys": closed({"größe": NUMBER, "日本語": STRING, "🙂": {"type": "null"}}, "日本語"),
    "keys to escape": closed({'quo"te': INTEGER, "back\\slash": INTEGER, "a/b~c": STRING}, "a/b~c"),
    "empty key": closed({"": INTEGER, " ": STRING}, ""),
    "property false": {
        "type": "object",
        "properties": {"a": False, "b": INTEGER},
        "additionalProperties": False,
    },
    "property true": closed({"a": True, "b": {}}, "a", "b"),
    # Arrays.
    "array": {"type": "array"},
    "integers": {"type": "array", "items": INTEGER},
    "array bounds": {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 4},
    "exactly three": {"type": "array", "items": STRING, "minItems": 3, "maxItems": 3},
    "matrix": {"type": "array", "items": {"type": "array", "items": NUMBER, "maxItems": 3}},
    "tuple": {"type": "array", "prefixItems": [STRING, INTEGER], "items": False, "minItems": 2},
    "tuple and rest": {"type": "array", "prefixItems": [STRING], "items": INTEGER},
    "short tuple": {"type": "array", "prefixItems": [STRING, INTEGER, STRING], "maxItems": 2},
    "array of persons": {"type": "array", "items": PERSON, "minItems": 1},
    "array not unique": {"type": "array", "items": INTEGER, "uniqueItems": False},
    # Strings.
    "string": STRING,
    "min length": {"type": "string", "minLength": 3},
    "max length": {"type": "string", "maxLength": 2},
    "exact length": {"type": "string", "minLength": 4, "maxLength": 4},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "pattern inside": {"type": "string", "pattern": "[0-9]{2}", "maxLength": 6},
    "pattern unicode": {"type": "string", "pattern": "^[äöüß]{1,3}$"},
    "pattern to escape": {"type": "string", "pattern": '^["\\\\/]{1,4}$'},
    "pattern and length": {"type": "string", "pattern": "^a*b*$", "minLength": 2, "maxLength": 5},
    "pattern alternatives": {"type": "string", "pattern": "^(red|green|blue)(-(light|dark))?$"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "date-time": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "format": "duration"},
    "email": {"type": "string", "format": "email"},
    "hostname": {"type": "string", "format": "hostname"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "uuid": {"type": "string", "format": "uuid"},
    "uri": {"type": "string", "format": "uri"},
    # Numbers.
    "integer": INTEGER,
    "number": NUMBER,
    "integer bounds": {"type": "integer", "minimum": -5, "maximum": 128},
    "integer open bounds": {"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 12},
    "number bounds": {"type": "number", "minimum": 0, "maximum": 1},
    "number open bounds": {"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": 0.5},
    "negative": {"type": "number", "maximum": -1.25},
    "multiple of 7": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100},
    "multiple of a quarter": {"type": "number", "multipleOf": 0.25, "maximum": 9, "minimum": 0},
    "openapi integer": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 3},
    # Values.
    "enum": {"enum": ["red", "green", 3, None, True, 1.5, {"a": [1]}, []]},
    "const": {"const": {"a": 1, "b": [True, None, "x"]}},
    "const text": closed({"version": {"const": "v1.0"}, "n": {"const": 42}}, "version", "n"),
    "enum with type": {"type": "string", "enum": ["a", "ab", "abc", "b"]},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "types": {"type": ["string", "null", "integer"]},
    "anything": {},
    "bounds without type": {"minimum": 3, "maxLength": 2},
    # Unions.
    "anyOf": {"anyOf": [INTEGER, {"type": "string", "maxLength": 3}, PERSON]},
    "anyOf objects": {"anyOf": [closed({"a": INTEGER}, "a"), closed({"b": STRING}, "b")]},
    "oneOf types": {"oneOf": [STRING, INTEGER, {"type": "array", "items": INTEGER}]},
    "oneOf pets": PETS,
    "nullable": closed({"a": {"anyOf": [STRING, {"type": "null"}]}}, "a"),
    "anyOf beside": {
        "type": "object",
        "properties": {"a": INTEGER, "b": STRING},
        "additionalProperties": False,
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"type": "object", "properties": {"b": STRING}, "required": ["b"]},
        ]
    },
    "allOf numbers": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 8}]},
    "allOf reference": {
        "$defs": {"base": {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"n": STRING}, "required": ["n"]}],
    },
    # References.
    "tree": TREE,
    "list": LIST,
    "expression": EXPRESSION,
    "root reference": closed({"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "next"),
    "reference beside": {
        "$defs": {"short": {"type": "string", "maxLength": 4}},
        "type": "array",
        "items": {"$ref": "#/$defs/short", "description": "not long"},
        "maxItems": 3,
    },
    "anchor": {
        "$defs": {"n": {"$anchor": "num", **INTEGER}},
        "type": "array",
        "items": {"$ref": "#num"},
    },
    "odd names": {
        "$defs": {"a/b": INTEGER, "ü %": STRING},
        **closed({"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/ü %25"}}, "x", "y"),
    },
    "into properties": {
        "type": "object",
        "properties": {"a": PERSON, "b": {"$ref": "#/properties/a"}},
        "required": ["a", "b"],
    },
    # As tools and applications write them.
    "pydantic": {
        "$defs": {"Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"}},
        "description": "What a user orders",
        "properties": {
            "color": {"$ref": "#/$defs/Color"},
            "count": {"default": 1, "exclusiveMinimum": 0, "title": "Count", "type": "integer"},
            "tags": {"items": STRING, "maxItems": 3, "title": "Tags", "type": "array"},
            "note": {"anyOf": [STRING, {"type": "null"}], "default": None, "title": "Note"},
        },
        "required": ["color"],
        "title": "Order",
        "type": "object",
    },
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "null"}}},
        "required": ["a"],
    },
    "weather": closed(
        {
            "location": {"type": "string", "description": "City"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "location",
        "unit",
    ),
}
