"""Whatever is generated under a schema is valid by it, as another implementation judges."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import pytest
from grammar_vocabulary import walk
from schema_samples import SCHEMAS

from anychip.grammar.errors import GrammarError
from anychip.request import GrammarSpec

WALKS = 6
REFUSED_WITH_XGRAMMAR = {
    "pattern properties": "/patternProperties",
    "property false": "/properties/a",
    "short tuple": "/prefixItems",
    "pattern inside": "/maxLength",
    "pattern and length": "/minLength",
    "multiple of a quarter": "/multipleOf",
    "anyOf beside": "/type",
    "allOf": "/allOf",
    "allOf numbers": "/allOf",
    "allOf reference": "/allOf",
    "anchor": "/items/$ref",
}
"""What llguidance enforces and xgrammar would pass over."""


def outside_of_strings(text):
    return re.sub(r'"(?:[^"\\]|\\.)*"', "", text)


def test_there_are_enough_schemas():
    assert len(SCHEMAS) >= 60


@pytest.mark.parametrize("any_whitespace", [True, False], ids=["whitespace", "compact"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_document_is_valid(compiler, backend, vocabulary, name, any_whitespace):
    schema = SCHEMAS[name]
    judge = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    spec = GrammarSpec("json_schema", json.dumps(schema), any_whitespace)
    if backend == "xgrammar" and name in REFUSED_WITH_XGRAMMAR:
        with pytest.raises(GrammarError) as caught:
            compiler.compile(spec)
        assert caught.value.pointer == REFUSED_WITH_XGRAMMAR[name]
        return
    grammar = compiler.compile(spec)
    rng = random.Random(name)
    for _ in range(WALKS):
        text = walk(grammar.matcher(), vocabulary, rng, budget=rng.randrange(1, 60)).decode()
        judge.validate(json.loads(text))
        assert any_whitespace or not re.search(r"\s", outside_of_strings(text)), text
