"""Rules: which calls they are for, whom they give, and what is refused at the start."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.flags import ConfigError
from anychip.router.asking import Ask
from anychip.router.rules import allowed, check_rules, first_met, narrowed, parse_rule

WORKERS = {"fast": ("sim",), "big": ("slow", "sim"), "127.0.0.1:30001": ()}


def meets(text, **fields):
    return parse_rule(f"{text}: big").meets(Ask(fields.pop("path", "/generate"), **fields))


@pytest.mark.parametrize(
    ("condition", "number", "holds"),
    [
        ("prompt_tokens>4096", 4096, False),
        ("prompt_tokens>4096", 4097, True),
        ("prompt_tokens >= 4096", 4096, True),
        ("prompt_tokens<5", 5, False),
        ("prompt_tokens<=5", 5, True),
        ("prompt_tokens=5", 5, True),
        ("prompt_tokens=5", 6, False),
        ("prompt_tokens>3 & prompt_tokens<6", 5, True),
        ("prompt_tokens>3 & prompt_tokens<6", 6, False),
    ],
)
def test_numbers_are_compared(condition, number, holds):
    assert meets(condition, prompt_tokens=number) is holds


def test_words_are_compared():
    assert meets("stream=false", stream=False) and not meets("stream=false", stream=True)
    assert meets("stream!=false", stream=True)
    assert meets("model=qwen:7b", model="qwen:7b") and not meets("model=a", model=None)
    assert meets("model!=a", model=None) and not meets("model!=a & model!=b", model="b")
    assert meets("path=/v1/completions", path="/v1/completions")
    assert meets("choices>1 & stream=true", choices=2, stream=True)
    assert not meets("choices>1 & stream=true", choices=2)


def test_a_call_that_says_no_limit_meets_no_condition_on_it():
    assert not meets("max_tokens>=0") and not meets("max_tokens<10")
    assert meets("max_tokens>=0", max_tokens=0)


def test_the_first_rule_that_is_met_gives_the_workers():
    rules = [parse_rule(text) for text in ("choices>1: fast", "prompt_tokens>9: big, @slow")]
    names, tags = ["fast", "big", "other"], {"other": ("slow",), "fast": ()}
    assert allowed(rules, Ask("/", choices=2, prompt_tokens=99), names, tags) == ("fast",)
    assert allowed(rules, Ask("/", prompt_tokens=99), names, tags) == ("big", "other")
    assert allowed(rules, Ask("/"), names, tags) == ("fast", "big", "other")
    assert allowed([], Ask("/"), names) == ("fast", "big", "other")


def test_where_all_of_a_rules_workers_are_away_nobody_else_answers_unless_any_may():
    rules, ask = [parse_rule("choices>1: fast")], Ask("/", choices=2)
    refused = narrowed(rules, ask, ["big"])
    assert (refused.names, refused.rule, refused.fell_back) == ((), rules[0], False)
    any_may = narrowed(rules, ask, ["big"], fallback="any")
    assert (any_may.names, any_may.rule, any_may.fell_back) == (("big",), rules[0], True)
    assert not narrowed(rules, ask, [], fallback="any").fell_back, "nobody is there at all"
    assert not narrowed(rules, ask, ["fast"], fallback="any").fell_back


def test_targets_may_be_addresses_and_stand_with_or_without_commas():
    assert parse_rule("choices>1: 127.0.0.1:30001 big").targets == ("127.0.0.1:30001", "big")
    assert parse_rule("model=q:7b:big,@slow").targets == ("big", "@slow")
    check_rules([parse_rule("choices>1: 127.0.0.1:30001, @slow")], WORKERS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no rule"),
        ("choices>1 big", "is no rule"),
        ("choices>1:", "names no worker behind the colon"),
        ("choices>1: @", "names no worker behind the colon"),
        (": big", "'' is no condition such as choices>1"),
        ("choices: big", "'choices' is no condition"),
        ("choices>1 &: big", "'' is no condition"),
        ("tokens>1: big", "calls have no 'tokens'; conditions are about prompt_tokens, max_tok"),
        ("choices>one: big", "'one' is no whole number from 0 to 2147483647"),
        ("choices>-1: big", "'-1' is no whole number"),
        ("choices>99999999999: big", "no whole number from 0 to 2147483647"),
        ("choices!=1: big", "numbers are compared with > >= < <= ="),
        ("model>a: big", "model is compared with = or !="),
        ("stream=maybe: big", "'maybe' is neither true nor false"),
        ("path=v1: big", "calls of 'v1' are not passed on; /v1/chat/completions, /v1/completions"),
        ("path!=/v1/embeddings: big", "calls of '/v1/embeddings' are not passed on"),
        ("choices<1: big", "never applies: no call can meet choices<1"),
        ("prompt_tokens>9 & prompt_tokens<9: big", "never applies"),
        ("prompt_tokens>2147483647: big", "never applies"),
        ("model=a & model=b: big", "never applies"),
        ("model=a & model!=a: big", "never applies"),
        ("stream=true & stream=false: big", "never applies"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_flags_name(text, why):
    with pytest.raises(ConfigError) as told:
        parse_rule(text)
    assert str(told.value).startswith(f"--rule: {text!r}: ")
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["choices>1: large"], "there is no worker 'large'; workers: fast, big, 127.0.0.1:30001"),
        (["choices>1: @quick"], "no worker has the tag 'quick'; tags: sim, slow"),
        (["choices>1: big", "choices>2: fast"], "'choices>1: big' before it takes every call"),
        (["stream=true: big", "choices>1: fast", "choices>1 & model=a: big"], "'choices>1: fast'"),
    ],
)
def test_a_rule_that_can_never_apply_is_refused(texts, why):
    with pytest.raises(ConfigError, match="--rule: ") as told:
        check_rules([parse_rule(text) for text in texts], WORKERS)
    assert why in str(told.value)


CONDITIONS = st.lists(
    st.sampled_from(
        [f"{name}{sign}{n}" for name in ("prompt_tokens", "max_tokens", "choices") for n in range(4)
         for sign in (">", ">=", "<", "<=", "=")]
        + [f"model{sign}{word}" for sign in ("=", "!=") for word in "ab"]
        + ["stream=true", "stream=false"]
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip
CALLS = [
    Ask("/", model=model, prompt_tokens=prompt, max_tokens=most, choices=choices, stream=stream)
    for model, prompt, most, choices, stream in itertools.product(
        (None, "a", "b", "c"), range(5), (None, 0, 1, 3, 4), range(1, 5), (True, False)
    )
]


def _rule(conditions):
    try:
        return parse_rule(" & ".join(conditions) + ": big")
    except ConfigError:
        return None


@settings(deadline=None, max_examples=150)
@given(CONDITIONS, CONDITIONS)
def test_a_rule_covers_another_just_where_it_takes_every_call_of_it(first, second):
    one, other = _rule(first), _rule(second)
    for conditions, rule in ((first, one), (second, other)):
        if rule is None:  # refused as one that no call can meet
            alone = [parse_rule(f"{text}: big") for text in conditions if _rule([text])]
            whole = len(alone) == len(conditions)
            assert not whole or not any(all(r.meets(ask) for r in alone) for ask in CALLS)
    if one is None or other is None:
        return
    takes = all(one.meets(ask) for ask in CALLS if other.meets(ask))
    assert not one.covers(other) or takes
    if takes and not one.covers(other):  # the calls tried are not all that there are
        assert any(
            name not in one.numbers or one.numbers[name] != other.numbers.get(name)
            for name in ("prompt_tokens", "max_tokens", "choices")
        )
    assert first_met([one, other], CALLS[0]) in (one, other, None)
