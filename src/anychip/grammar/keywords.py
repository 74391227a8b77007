"""What is done with each keyword of JSON Schema. A keyword that is not here is refused."""

from __future__ import annotations

APPLIED_TO_SCHEMA = frozenset({"items", "additionalProperties", "additionalItems"})
"""Enforced; the value is one schema."""
APPLIED_TO_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Enforced; the value is a list of schemas."""
APPLIED_TO_MAP = frozenset({"properties", "patternProperties"})
"""Enforced; the value is an object of schemas."""
DEFINITIONS = frozenset({"$defs", "definitions"})

COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
"""Enforced; the value is a whole number from 0 on."""
BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
"""Enforced; the value is a number."""
VALUES = frozenset({"type", "enum", "const", "required", "pattern", "format", "$ref"})
"""Enforced; each with a form of its own."""

ANNOTATIONS = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$comment", "$vocabulary"),
        *("title", "description", "default", "examples", "example", "deprecated"),
        *("readOnly", "writeOnly", "externalDocs", "xml", "discriminator"),
        *("contentMediaType", "contentEncoding", "contentSchema"),
    }
)
"""These say nothing about which documents are valid, by the standard or by OpenAPI."""

ENFORCED = (
    APPLIED_TO_SCHEMA | APPLIED_TO_LIST | APPLIED_TO_MAP | DEFINITIONS | COUNTS | BOUNDS | VALUES
)

REFUSED = {
    "not": "describe what is allowed instead",
    "if": "use anyOf with one entry a case",
    "then": "use anyOf with one entry a case",
    "else": "use anyOf with one entry a case",
    "contains": "use prefixItems where the place is known, or check the answer",
    "minContains": "use prefixItems where the place is known, or check the answer",
    "maxContains": "use prefixItems where the place is known, or check the answer",
    "uniqueItems": "a grammar does not remember earlier items; check the answer",
    "propertyNames": "use patternProperties with additionalProperties false",
    "dependentRequired": "use anyOf with one entry a case",
    "dependentSchemas": "use anyOf with one entry a case",
    "dependencies": "use anyOf with one entry a case",
    "unevaluatedItems": "use items false",
    "unevaluatedProperties": "use additionalProperties false",
    "$dynamicRef": "use $ref",
    "$dynamicAnchor": "use $anchor",
    "$recursiveRef": "use $ref",
    "$recursiveAnchor": "use $ref",
    "nullable": 'use "type": ["string", "null"], or anyOf with {"type": "null"}',
    "divisibleBy": "use multipleOf",
    "extends": "use allOf",
    "disallow": "describe what is allowed instead",
    "x-guidance": "whitespace is chosen by the request",
}
"""Keywords of JSON Schema and its relatives that would be ignored, and the way out."""

WITHOUT_EFFECT = {
    "uniqueItems": False,
    "nullable": False,
    "unevaluatedItems": True,
    "unevaluatedProperties": True,
    "minContains": 0,
}
"""Refused keywords that say nothing with this value: they are left out."""

FORMATS = frozenset(
    "date-time time date duration email hostname ipv4 ipv6 uuid uri".split()  # noqa: SIM905
)
"""Enforced by shape: the days of a month are not counted."""

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
