"""Grammars in llguidance's own dialect: taken as they are, but for what reaches past them."""

from __future__ import annotations

import pytest
from grammar_vocabulary import takes

from anychip.grammar.errors import GrammarError
from anychip.request import GrammarSpec

REFUSED = {
    'start: x\nx[stop="b"]: /a+/': "line 2: the option stop",
    "start: x\nx[max_tokens=3]: /a+/": "line 2: the option max_tokens",
    "start: x\nx[lazy, temperature=0.5]: /a+/": "the option temperature",
    "start: @other": "no other grammar",
    "%include x\nstart: /a/": "%include is not supported",
    'start: %json {"type": "object", "contains": 1}': "/contains",
    'start: %json {"x-guidance": {"lenient": true}}': "x-guidance",
    "start: %json {": "not followed by JSON",
    "start: /(?=a)b/": "look-around",
    "start: nothing": "unknown|not found|undefined|no",
    "begin: /a/": "start",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_what_reaches_past_a_grammar_is_refused(llguidance, text):
    with pytest.raises(GrammarError, match=REFUSED[text]):
        llguidance.compile(GrammarSpec("lark", text))


def test_a_grammar_is_taken_as_it_is(llguidance, vocabulary):
    source = """// stop=1 and @x in a comment are nothing
start: "@x " (value " ")* TAIL
value: %json {"type": "integer", "maximum": 99, "title": "n"} | "[stop=1]"
TAIL: /[a-z]+/ & ~/end/
"""
    grammar = llguidance.compile(GrammarSpec("lark", source))
    assert takes(grammar, vocabulary, "@x 12 7 [stop=1] tail")
    assert not takes(grammar, vocabulary, "@x 100 tail")
    assert not takes(grammar, vocabulary, "@x end")
