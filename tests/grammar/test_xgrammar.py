"""What xgrammar's own reading got wrong or leaves open, and the bounds around it."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from grammar_vocabulary import CALL, EOT, allowed, takes, walk

from anychip.grammar.backend import backend_complaint
from anychip.grammar.check import GrammarCheck
from anychip.grammar.compiler import GrammarCompiler
from anychip.grammar.errors import GrammarError
from anychip.grammar.limits import GrammarLimits
from anychip.request import GrammarSpec

NO_XGRAMMAR = backend_complaint("xgrammar")
pytestmark = pytest.mark.skipif(bool(NO_XGRAMMAR), reason=NO_XGRAMMAR or "")

SLOW = GrammarSpec("ebnf", 'root ::= x{200}\nx ::= [a-z]{0,400} "," | [^,]{0,400} y\ny ::= x{0,90}')
"""Takes xgrammar minutes to compile."""
AMBIGUOUS = GrammarSpec("ebnf", 'root ::= x x x x x x x x\nx ::= "a"* | x x')
"""Each further letter can be read in more ways."""


@pytest.fixture(scope="module")
def xgrammar(vocabulary):
    return GrammarCompiler(vocabulary, backend="xgrammar")


def schema(value, any_whitespace=True):
    return GrammarSpec("json_schema", json.dumps(value), any_whitespace)


def test_lark_is_refused_by_name(xgrammar):
    with pytest.raises(GrammarError, match="a lark grammar is llguidance's"):
        xgrammar.compile(GrammarSpec("lark", "start: /a/"))


def test_a_chain_of_references_that_leads_nowhere_has_its_pointer(xgrammar):
    spec = schema({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}})
    with pytest.raises(GrammarError, match="Circular"):
        xgrammar.compile(spec)
    assert str(xgrammar.backend.complaint(spec)).endswith("/$ref")


@pytest.mark.parametrize("name", ["größe", "日f", "é0", "a/b", 'quo"te', "\x1f", "🙂a"])
def test_names_and_values_keep_their_characters(xgrammar, vocabulary, name):
    """Its grammars as text spell a character by two digits, and are read by as many as follow."""
    closed = {
        "type": "object",
        "properties": {name: {"const": name}},
        "required": [name],
        "additionalProperties": False,
    }
    grammar = xgrammar.compile(schema(closed, any_whitespace=False))
    text = walk(grammar.matcher(), vocabulary, random.Random(1))
    assert json.loads(text) == {name: name}


def test_no_character_is_one_that_is_no_text(xgrammar, vocabulary):
    for spec in (
        schema({"type": "string"}),
        schema({"type": "string", "minLength": 1, "maxLength": 3}),
        schema({"type": "string", "pattern": "^[^a]*$"}),
    ):
        matcher = xgrammar.compile(spec).matcher()
        assert matcher.accept(ord('"'))
        ids = set(allowed(matcher, vocabulary))
        assert not ids & {0, 1, ord("\n"), ord("\t"), 0xFF} and ord("z") in ids
        assert matcher.accept(0xED) and 0xA0 not in allowed(matcher, vocabulary)
    for spec in (GrammarSpec("regex", "[^a]*"), GrammarSpec("ebnf", "root ::= [^a] .")):
        matcher = xgrammar.compile(spec).matcher()
        assert not {0, 0xFF, *vocabulary.special.values()} & set(
            allowed(matcher, vocabulary)
        ) - set(vocabulary.eos_ids)
        assert matcher.accept(0xED) and 0xA0 not in allowed(matcher, vocabulary)


def test_lengths_count_characters(xgrammar, vocabulary):
    grammar = xgrammar.compile(schema({"type": "string", "minLength": 2, "maxLength": 3}))
    assert [t for t in ("ab", "日本", "🙂é🙂") if not takes(grammar, vocabulary, f'"{t}"')] == []
    assert [t for t in ("", "日", "abcd", "a\t") if takes(grammar, vocabulary, f'"{t}"')] == []


def test_integers_are_within_their_bounds(xgrammar, vocabulary):
    rng = random.Random(3)
    for _ in range(12):
        low, high = sorted(rng.choices(range(-130, 131), k=2))
        kind = {"type": "integer", "minimum": low, "maximum": high}
        if rng.random() < 0.4 and high - low > 9:
            kind["multipleOf"] = 7
        grammar = xgrammar.compile(schema(kind))
        for value in [*range(-140, 141, 3), low - 1, low, high, high + 1]:
            fits = low <= value <= high and value % kind.get("multipleOf", 1) == 0
            assert takes(grammar, vocabulary, str(value)) == fits, (kind, value)


def test_numbers_are_within_their_bounds(xgrammar, vocabulary):
    rng = random.Random(5)
    for at in range(25):
        scale = rng.choice([1, 100, 10**6])
        low, high = sorted(round(rng.uniform(-9e8, 9e8) / scale**1.4, 6) for _ in range(2))
        names = rng.choice(
            [("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum"), ("minimum", None)]
        )
        kind = {"type": "number", names[0]: low} | ({names[1]: high} if names[1] else {})
        grammar = xgrammar.compile(schema(kind))
        for _ in range(6):
            value = float(walk(grammar.matcher(), vocabulary, rng, budget=rng.randrange(14)))
            assert value > low or (value == low and "minimum" in kind), (at, kind, value)
            assert names[1] is None or value < high or (value == high and "maximum" in kind), kind


def test_objects_hold_as_many_properties_as_they_may(xgrammar, vocabulary):
    whole = {"type": "integer"}
    for least, most, listed in ((1, 2, ()), (2, 3, ("a",)), (0, 1, ()), (2, 2, ("a", "b"))):
        kind = {
            **{"type": "object", "properties": dict.fromkeys(listed, whole)},
            **{"required": list(listed), "additionalProperties": whole},
            **{"minProperties": least, "maxProperties": most},
        }
        grammar = xgrammar.compile(schema(kind, any_whitespace=False))
        for count in range(5):
            value = dict.fromkeys("abcde"[:count], 1)
            fits = max(least, len(listed)) <= count <= most
            text = json.dumps(value, separators=(",", ":"))
            assert takes(grammar, vocabulary, text) == fits, (kind, value)


def test_an_end_token_inside_of_a_tag_is_a_token(xgrammar, vocabulary):
    form = {"type": "tag", "begin": CALL, "content": {"type": "any_text"}, "end": EOT}
    spec = GrammarSpec("structural_tag", json.dumps({"type": "structural_tag", "format": form}))
    matcher = xgrammar.compile(spec).matcher()
    assert list(allowed(matcher, vocabulary)) == [vocabulary.special[CALL]]
    assert matcher.accept(vocabulary.special[CALL]) and matcher.accept(ord("x"))
    assert not matcher.may_end and matcher.accept(vocabulary.special[EOT]) and matcher.finished


def test_a_request_whose_grammar_grows_too_complex_ends_alone(vocabulary):
    compiler = GrammarCompiler(vocabulary, GrammarLimits(step_s=0.02), "xgrammar")
    matcher = compiler.compile(AMBIGUOUS).matcher()
    with pytest.raises(GrammarError, match=r"too complex: one token took xgrammar more than 0\.02"):
        for _ in range(2000):
            allowed(matcher, vocabulary)
            assert matcher.accept(ord("a"))
    assert compiler.compile(GrammarSpec("regex", "a+")).matcher().accept(ord("a"))


@pytest.fixture
def checks(vocabulary):
    """Makes checks, each with a process of its own, that end with the test."""
    made = []

    def make(**limits):
        made.append(GrammarCheck(vocabulary, GrammarLimits(**limits), "xgrammar"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_process_that_checks_compiles_with_what_is_served(checks):
    check = checks()
    check.check(schema({"type": "object"}))
    with pytest.raises(GrammarError, match="beside enum") as caught:
        check.check(schema({"items": {"enum": [1], "minimum": 0}}))
    assert caught.value.pointer == "/items/minimum"
    with pytest.raises(GrammarError, match="Circular") as caught:
        check.check(schema({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}}))
    assert str(caught.value.pointer).endswith("/$ref")
    with pytest.raises(GrammarError, match="llguidance's"):
        check.check(GrammarSpec("lark", "start: /a/"))


def test_a_compile_is_ended_after_its_time_and_at_once_when_cancelled(checks):
    check = checks(compile_s=1.0)
    with pytest.raises(GrammarError, match="longer than 1 s"):
        check.check(SLOW)
    first = checks(compile_s=600)

    async def scenario():
        await first.check_async(GrammarSpec("regex", "a+"))
        running = asyncio.create_task(first.check_async(SLOW))
        while first._running is None:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await first.check_async(GrammarSpec("regex", "b+"))  # a new process, once more imported

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_compile_that_takes_too_much_memory_is_ended(checks):
    check = checks(compile_s=120, compile_bytes=24 << 20)
    large = json.dumps([f"{number} choice {number * 7919}" for number in range(9000)])
    with pytest.raises(GrammarError, match=r"needs more (memory|than 24 MiB)"):
        check.check(GrammarSpec("choice", large))
    check.check(GrammarSpec("regex", "a+"))
