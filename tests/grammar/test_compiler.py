"""Compiled grammars are kept up to a number of bytes, and schemas stay what they were."""

from __future__ import annotations

import threading

import pytest
from grammar_vocabulary import takes

from anychip.grammar.compiler import GrammarCompiler
from anychip.grammar.errors import GrammarError
from anychip.grammar.limits import GrammarLimits
from anychip.request import GrammarSpec


def regex(at):
    return GrammarSpec("regex", f"a{{{at}}}")


def test_a_grammar_is_compiled_once(compiler):
    assert compiler.compile(regex(3)) is compiler.compile(regex(3))
    assert compiler.compile(regex(3)) is not compiler.compile(regex(4))


def test_the_cache_is_bounded_by_bytes_and_drops_what_was_used_longest_ago(vocabulary):
    one = GrammarCompiler(vocabulary).compile(regex(1)).most_bytes
    compiler = GrammarCompiler(vocabulary, GrammarLimits(cache_bytes=3 * one + one // 2))
    first, second = compiler.compile(regex(1)), compiler.compile(regex(2))
    for grammar in (first, second, compiler.compile(regex(3))):
        grammar.matcher()
    assert compiler.compile(regex(1)) is first
    compiler.compile(regex(4)).matcher()
    assert compiler.compile(regex(4)) and compiler.cached == 3
    assert compiler.cached_bytes <= compiler.limits.cache_bytes
    assert compiler.compile(regex(1)) is first
    assert compiler.compile(regex(2)) is not second


def test_many_grammars_that_wait_are_still_there_when_they_are_used(vocabulary):
    compiler = GrammarCompiler(vocabulary)
    waiting = [compiler.compile(regex(at)) for at in range(1, 101)]
    assert all(compiler.compile(regex(at)) is one for at, one in enumerate(waiting, 1))


def test_what_is_larger_than_the_cache_is_served_and_not_kept(vocabulary):
    compiler = GrammarCompiler(vocabulary, GrammarLimits(cache_bytes=1))
    assert takes(compiler.compile(regex(2)), vocabulary, "aa")
    assert compiler.cached == compiler.cached_bytes == 0


def test_a_larger_grammar_counts_for_more(compiler):
    small = compiler.compile(GrammarSpec("choice", '["a"]'))
    large = compiler.compile(GrammarSpec("choice", f'["{"a" * 5000}"]'))
    assert large.bytes > small.bytes + 5000


def test_whitespace_is_part_of_what_a_grammar_is(compiler, vocabulary):
    free = compiler.compile(GrammarSpec("json_object", ""))
    compact = compiler.compile(GrammarSpec("json_object", "", any_whitespace=False))
    assert takes(free, vocabulary, '{"a": 1,\n  "b" : []}')
    assert not takes(compact, vocabulary, '{"a": 1}')
    assert takes(compact, vocabulary, '{"a":1,"b":[]}')
    assert not takes(free, vocabulary, "[1]") and not takes(free, vocabulary, "{} ")


def test_whitespace_comes_to_an_end(compiler, vocabulary):
    free = compiler.compile(GrammarSpec("json_object", ""))
    assert takes(free, vocabulary, "{" + " " * 64 + "}")
    assert not takes(free, vocabulary, "{" + " " * 65 + "}")


def test_a_name_cannot_be_spelled_twice(compiler, vocabulary):
    """Python and others read {"\\u0061": "x"} as a second a, of any type."""
    spec = GrammarSpec(
        "json_schema", '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    )
    grammar = compiler.compile(spec)
    assert takes(grammar, vocabulary, '{"a":1,"b":"x"}')
    assert not takes(grammar, vocabulary, '{"\\u0061":"x"}')
    assert not takes(grammar, vocabulary, '{"a":1,"\\u0061":"x"}')
    assert not takes(grammar, vocabulary, '{"a":1,"a":"x"}')


def test_threads_may_share_a_compiler_and_a_grammar(vocabulary):
    compiler = GrammarCompiler(vocabulary)
    wrong = []

    def work(number):
        for at in range(1, 12):
            text = "a" * at
            if not takes(compiler.compile(regex(at)), vocabulary, text):
                wrong.append((number, at))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and compiler.cached == 11


@pytest.mark.parametrize("kind", ["json", "", "gbnf"])
def test_an_unknown_kind_is_refused(compiler, kind):
    with pytest.raises(GrammarError, match="no kind of grammar"):
        compiler.compile(GrammarSpec(kind, "x"))
