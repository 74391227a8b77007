"""A GrammarSpec as a grammar of llguidance: bounds first, then the translation of its kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import llguidance

from anychip.grammar.ebnf import ebnf_to_lark, literal
from anychip.grammar.errors import GrammarError, step
from anychip.grammar.json_schema import json_source
from anychip.grammar.json_text import read_json
from anychip.grammar.lark import checked_lark
from anychip.grammar.limits import GrammarLimits, check_size
from anychip.grammar.patterns import check_pattern, regex_body
from anychip.grammar.structural import structural_to_lark
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec


def translate(spec: GrammarSpec, vocabulary: Vocabulary, limits: GrammarLimits) -> str:
    """The grammar in llguidance's words. Raises GrammarError, with a pointer where it has one."""
    check_size(spec, limits)
    if spec.kind == "structural_tag":
        value = read_json(spec.text, "the structural tag", limits)
        return structural_to_lark(value, vocabulary, limits, spec.any_whitespace)
    return _TRANSLATIONS[spec.kind](spec, limits)


def _json_schema(spec: GrammarSpec, limits: GrammarLimits) -> str:
    schema = read_json(spec.text, "the schema", limits)
    return schema_grammar(json_source(schema, spec.any_whitespace))


def _json_object(spec: GrammarSpec, limits: GrammarLimits) -> str:
    return schema_grammar(json_source({"type": "object"}, spec.any_whitespace))


def _regex(spec: GrammarSpec, limits: GrammarLimits) -> str:
    check_pattern(spec.text)
    return f"start: /{regex_body(spec.text)}/\n"


def _ebnf(spec: GrammarSpec, limits: GrammarLimits) -> str:
    return ebnf_to_lark(spec.text, limits.depth)


def _lark(spec: GrammarSpec, limits: GrammarLimits) -> str:
    return checked_lark(spec.text, limits, spec.any_whitespace)


def schema_grammar(source: str) -> str:
    """The grammar of one JSON schema, which `json_source` wrote."""
    return str(llguidance.LLMatcher.grammar_from_json_schema(source))


def _choice(spec: GrammarSpec, limits: GrammarLimits) -> str:
    return f"start: CHOICE\nCHOICE: {' | '.join(map(literal, choices_of(spec, limits)))}\n"


def choices_of(spec: GrammarSpec, limits: GrammarLimits) -> list[str]:
    """The texts of a choice. GrammarError with the pointer of what is none."""
    choices = read_json(spec.text, "the choice", limits)
    if not isinstance(choices, list) or not choices:
        raise GrammarError("a choice is a list with an entry")
    if len(choices) > limits.choices:
        raise GrammarError(f"the choice has {len(choices)} entries; at most {limits.choices}")
    for at, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice:
            shown = json.dumps(choice)
            raise GrammarError(f"must be a text, not {shown:.60}", step("", at))
    return choices


_TRANSLATIONS: Mapping[str, Callable[[GrammarSpec, GrammarLimits], str]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "regex": _regex,
    "ebnf": _ebnf,
    "choice": _choice,
    "lark": _lark,
}
