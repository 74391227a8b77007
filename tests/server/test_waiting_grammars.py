"""Calls whose grammar waits to be checked: bounded in number and time, and nothing stays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from anychip.grammar.check import GrammarCheck
from anychip.grammar.errors import NotChecked
from anychip.http.errors import ApiError
from anychip.request import GrammarSpec
from anychip.server.grammar_fields import GrammarWish
from anychip.server.grammars import Grammars
from anychip.text.load import open_tokenizer
from served import config_for

WISH = GrammarWish(spec=GrammarSpec("regex", "a+"), field="regex")


@pytest.fixture
def grammars(folder, monkeypatch):
    """A check that never ends, unless it is cancelled."""

    async def check(self, spec):
        await asyncio.sleep(60)

    monkeypatch.setattr(GrammarCheck, "check_async", check)
    tokenizer, client = (
        open_tokenizer(folder),
        SimpleNamespace(info=SimpleNamespace(vocab_size=260)),
    )

    def make(**settings):
        return Grammars(config_for(folder, **settings), client, tokenizer)

    return make


def refusal(outcome):
    assert isinstance(outcome, ApiError) and outcome.status == 503
    return outcome.body.code


def test_a_check_that_waits_for_too_long_is_given_up(grammars):
    outcome = asyncio.run(gathered(grammars(waiting_timeout=0.05), 1))
    assert [refusal(one) for one in outcome] == ["queue_timeout"]


def test_as_many_wait_as_may_be_queued(grammars):
    mine = grammars(waiting_timeout=0.2, max_queued_requests=2)
    codes = [refusal(one) for one in asyncio.run(gathered(mine, 5))]
    assert codes == ["queue_timeout"] * 3 + ["queue_full"] * 2  # one is checked, two wait
    assert [refusal(one) for one in asyncio.run(gathered(mine, 1))] == ["queue_timeout"]


def test_a_check_that_was_killed_says_nothing_of_the_grammar(grammars, monkeypatch):
    async def check(self, spec):
        raise NotChecked("killed; send it again")

    mine = grammars()
    monkeypatch.setattr(GrammarCheck, "check_async", check)
    assert [refusal(one) for one in asyncio.run(gathered(mine, 1))] == ["grammar_not_checked"]


async def gathered(grammars, count):
    calls = (grammars.check(WISH) for _ in range(count))
    return await asyncio.gather(*calls, return_exceptions=True)
