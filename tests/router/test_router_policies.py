"""Who is chosen: affinity, balance, turns, keys; and that a miss feeds nobody who has most."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.config import RouterConfig
from anychip.flags import ConfigError, settings_of
from anychip.router.asking import Ask
from anychip.router.choosing import PolicyOptions, Seen, Why, loads
from anychip.router.policies import POLICIES, policy_named
from anychip.router.prefixes import BLOCK

IDLE = [Seen("a", window=16), Seen("b", window=16), Seen("c", window=16)]


def prompt(text, key=None):
    return Ask("/generate", prompt=b"".join(letter.encode() * BLOCK for letter in text), key=key)


def give(policy, ask, seen):
    choice = policy.choose(ask, seen)
    policy.served(ask, choice.name)
    return choice


@pytest.mark.parametrize("name", POLICIES)
def test_the_only_one_is_taken(name):
    choice = policy_named(name).choose(prompt("x", key="k"), [Seen("a", calls=99)])
    assert (choice.name, choice.why) == ("a", "only")


@pytest.mark.parametrize("name", POLICIES)
def test_equal_seeds_make_equal_choices(name):
    asks = [prompt("xyz"[n % 3] * (1 + n % 2), key=str(n % 5)) for n in range(60)]

    def run(seed):
        policy = policy_named(name, PolicyOptions(seed=seed))
        return [give(policy, ask, IDLE) for ask in asks]

    assert run(4) == run(4)
    if name in ("random", "power_of_two"):
        assert run(4) != run(5)


def test_a_name_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match="--policy: 'best' is none of cache_aware, least_load"):
        policy_named("best")


def test_load_is_relative_to_window_and_weight():
    seen = [Seen("small", 4, window=8), Seen("large", 8, window=64), Seen("heavy", 8, 0, 8, 4.0)]
    assert loads(seen) == [0.5, 0.125, 0.25]
    assert policy_named("least_load").choose(Ask("/"), seen)[:2] == ("large", "load")


def test_a_worker_that_tells_no_window_counts_as_the_smallest_that_is_told():
    assert loads([Seen("a", 4, window=8), Seen("b", 4), Seen("c", 4, window=16)]) == [
        0.5,
        0.5,
        0.25,
    ]
    assert loads([Seen("a", 32), Seen("b", 16)]) == [0.5, 0.25]


def test_equal_calls_are_told_apart_by_prompt_tokens_and_equals_take_turns():
    policy = policy_named("least_load")
    seen = [Seen("a", 1, 900), Seen("b", 1, 100)]
    assert policy.choose(Ask("/"), seen).name == "b"
    turns = [policy.choose(Ask("/"), IDLE).name for _ in range(6)]
    assert turns == ["a", "b", "c", "a", "b", "c"]


def test_turns_are_kept_for_each_set_of_candidates():
    policy = policy_named("round_robin")
    pairs = [policy.choose(Ask("/"), IDLE[:2]).name for _ in range(2)]
    mixed = []
    for _ in range(4):
        mixed.append(policy.choose(Ask("/"), IDLE[:2]).name)
        policy.choose(Ask("/"), IDLE[2:])
    assert pairs == ["a", "b"]
    assert mixed == ["a", "b", "a", "b"], "a call for others takes nobody's turn"


def test_chance_follows_the_weights():
    policy = policy_named("random", PolicyOptions(seed=1))
    seen = [Seen("a"), Seen("b", weight=3.0)]
    counts = Counter(policy.choose(Ask("/"), seen).name for _ in range(2000))
    assert 1400 < counts["b"] < 1600


def test_the_less_loaded_of_two_never_takes_the_most_loaded_of_all():
    policy = policy_named("power_of_two")
    seen = [Seen("a", 1), Seen("b", 2), Seen("worst", 30)]
    counts = Counter(policy.choose(Ask("/"), seen).name for _ in range(300))
    assert counts["worst"] == 0 and counts["a"] > counts["b"] > 0


def test_a_key_stays_where_it_is_and_a_worker_takes_only_its_own_along():
    policy, keys = policy_named("consistent"), [str(n) for n in range(900)]

    def homes(seen):
        return {key: policy.choose(prompt("x", key=key), seen).name for key in keys}

    before = homes(IDLE)
    busy = [one._replace(calls=50) for one in IDLE]
    assert homes(busy) == before, "whatever there is to do"
    assert homes(IDLE[::-1]) == before, "in whatever order they are told"
    without = homes([IDLE[0], IDLE[2]])
    assert {key for key in keys if without[key] != before[key]} == {
        key for key in keys if before[key] == "b"
    }
    assert homes(IDLE) == before, "and they come back with it"
    assert all(240 < count < 360 for count in Counter(before.values()).values())


def test_heavier_workers_have_more_keys_and_calls_without_one_go_by_load():
    policy = policy_named("consistent")
    seen = [Seen("a"), Seen("b", weight=3.0)]
    counts = Counter(policy.choose(prompt("x", key=str(n)), seen).name for n in range(2000))
    assert 1400 < counts["b"] < 1600
    assert policy.choose(prompt("x"), [Seen("a", 3), Seen("b", 1)])[:2] == ("b", "load")


def test_a_prompt_goes_where_its_beginning_went():
    policy = policy_named("cache_aware")
    first = give(policy, prompt("abcd"), IDLE)
    assert first[1:] == ("load", 0)
    give(policy, prompt("xyz"), IDLE)
    again = give(policy, prompt("abcdef"), IDLE)
    assert again == (first.name, "prefix", 4 * 32)


def test_prompts_of_two_models_share_nothing():
    policy = policy_named("cache_aware")
    one = Ask("/generate", model="m", prompt=prompt("abcd").prompt)
    give(policy, one, IDLE)
    other = Ask("/generate", model="n", prompt=one.prompt)
    assert policy.choose(other, IDLE).matched_tokens == 0


def test_misses_are_spread_out_though_one_has_been_given_most():
    """sglang PR#14305: where a miss goes to the fullest cache, one worker gets everything."""
    policy = policy_named("cache_aware")
    counts = Counter(give(policy, prompt(chr(200 + n) * 8), IDLE).name for n in range(30))
    assert counts == {"a": 10, "b": 10, "c": 10}


def test_a_beginning_that_all_prompts_share_does_not_send_them_to_one_worker():
    policy = policy_named("cache_aware")
    counts = Counter(give(policy, prompt("s" + chr(200 + n) * 19), IDLE).name for n in range(60))
    assert counts == {"a": 20, "b": 20, "c": 20}, "one block of twenty is no reason"


def test_an_owner_with_too_much_to_do_is_passed_over_and_the_next_one_learns():
    policy = policy_named("cache_aware")
    owner = give(policy, prompt("abcd"), IDLE).name
    busy = [one._replace(calls=6 if one.name == owner else 1) for one in IDLE]
    other = give(policy, prompt("abcde"), busy)
    assert other.why == "balance" and other.name != owner and other.matched_tokens == 0
    more = give(policy, prompt("abcdef"), busy)
    assert (more.name, more.matched_tokens) == (other.name, 5 * 32)


def test_balance_needs_both_thresholds():
    policy = policy_named("cache_aware")
    owner = give(policy, prompt("abcd"), IDLE).name

    def why(mine, others):
        seen = [one._replace(calls=mine if one.name == owner else others) for one in IDLE]
        return policy.choose(prompt("abcd"), seen).why

    assert why(4, 0) == "prefix", "a quarter of the window above the least"
    assert why(5, 0) == "balance"
    assert why(15, 10) == "prefix", "half as much again"
    assert why(16, 10) == "balance"


def test_somebody_elses_overload_takes_no_cache_away():
    """sglang PR#32195: there one busy worker ends the affinity of all calls."""
    policy = policy_named("cache_aware")
    first, second = (give(policy, prompt(text), IDLE).name for text in ("abcd", "wxyz"))
    seen = [one._replace(calls=200 if one.name == first else 0) for one in IDLE]
    assert policy.choose(prompt("wxyz"), seen)[:2] == (second, "prefix")


def test_of_those_who_have_it_the_less_loaded_is_taken():
    policy = policy_named("cache_aware")
    for one in IDLE[:2]:
        policy.served(prompt("abcd"), one.name)
    seen = [IDLE[0]._replace(calls=2), IDLE[1]._replace(calls=1), IDLE[2]]
    assert policy.choose(prompt("abcd"), seen) == ("b", "prefix", 4 * 32)


def test_a_worker_whose_cache_is_empty_is_no_reason_any_more():
    policy = policy_named("cache_aware")
    owner = give(policy, prompt("abcd"), IDLE).name
    policy.forget(owner)
    assert policy.choose(prompt("abcd"), IDLE)[1:] == ("load", 0)


SEEN = st.lists(
    st.builds(
        Seen,
        st.sampled_from("abcdef"),
        st.integers(0, 300),
        st.integers(0, 10**6),
        st.none() | st.integers(1, 256),
        st.floats(0.01, 100),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda one: one.name,
)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(SEEN, st.text("xyz", max_size=6)), min_size=1, max_size=12))
@pytest.mark.parametrize("name", POLICIES)
def test_whatever_there_is_one_of_the_candidates_is_chosen(name, calls):
    policy = policy_named(name)
    for seen, text in calls:
        choice = give(policy, prompt(text, key=text or None), seen)
        assert choice.name in [one.name for one in seen]
        assert choice.why in get_args(Why) and 0 <= choice.matched_tokens <= 32 * len(text)
        assert (choice.why == "only") == (len(seen) == 1)


@settings(deadline=None, max_examples=30)
@given(SEEN)
@pytest.mark.parametrize("name", ["cache_aware", "least_load"])
def test_a_prompt_that_nobody_has_goes_where_there_is_least_to_do(name, seen):
    choice = policy_named(name).choose(prompt("q"), seen)
    load = dict(zip([one.name for one in seen], loads(seen), strict=True))
    assert load[choice.name] == min(load.values())


def test_the_flag_offers_every_policy():
    flag = next(one.flag for one in settings_of(RouterConfig) if one.field == "policy")
    assert flag.choices == tuple(POLICIES)
