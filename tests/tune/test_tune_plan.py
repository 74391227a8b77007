"""Which runs are made, and in which order."""

from __future__ import annotations

import msgspec
import pytest
from tune_cases import CHUNK, LOAD, RUNNING, VARIABLES, plan

from anychip.bench.tune.changed import changed
from anychip.bench.tune.plan import (
    BASE,
    Configuration,
    left_s,
    one_by_one,
    ordered,
    powers,
    together,
)


def test_one_variable_at_a_time() -> None:
    labels = [one.label for one in one_by_one(VARIABLES)]
    assert labels == ["base", f"{RUNNING} 4", f"{RUNNING} 8", f"{CHUNK} 512"]
    assert all(len(one.changes) < 2 for one in one_by_one(VARIABLES))


def test_the_best_of_each_are_put_together_and_measured_again_alone() -> None:
    both = together(VARIABLES, {CHUNK: "512", RUNNING: "8"})
    assert [one.label for one in both] == [
        "base",
        f"{RUNNING} 8",
        f"{CHUNK} 512",
        f"{RUNNING} 8 {CHUNK} 512",
    ]
    assert together(VARIABLES, {RUNNING: "4"}) == (BASE, Configuration(((RUNNING, "4"),)))
    assert together(VARIABLES, {}) == ()


def test_the_order_turns_around_from_repeat_to_repeat() -> None:
    found = one_by_one(VARIABLES)
    assert ordered(found, 0) == found == ordered(found, 2)
    assert ordered(found, 1) == found[::-1]


@pytest.mark.parametrize(
    ("window", "base", "found"),
    [
        (1, 64, (1,)),
        (1, 1, ()),
        (20, 64, (1, 2, 4, 8, 16)),
        (64, 64, (4, 8, 16, 32)),
        (1000, 64, (32, 128, 256, 512)),
    ],
)
def test_candidates_are_powers_of_two_up_to_the_window(window, base, found) -> None:
    assert powers(window, base) == found


def test_the_time_left_is_that_of_the_runs_so_far() -> None:
    assert left_s([], 4) is None
    assert left_s([2.0, 4.0], 6) == 12.0
    assert left_s([2.0], 1) == 0.0


def test_a_plan_of_other_runs_has_another_hash_and_says_where() -> None:
    other = plan(repeats=4)
    assert plan().hash == plan().hash != other.hash
    assert changed(plan(), other) == ["--repeats: 3 then, 4 now"]
    assert changed(plan(), plan()) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"base": ("--backend", "cpu", RUNNING, "2")}, ["--backend: fake then, cpu now"]),
        ({"base": ("--backend", "fake", RUNNING, "2", "--disable-radix-cache")},
         ["--disable-radix-cache: not given then, given now"]),
        ({"variables": VARIABLES[:1]},
         ["--vary chunked-prefill-size: 1024,512 then, not given now"]),
        ({"slo_ms": (500.0, None)}, ["--slo-ttft: not given then, 500 now"]),
        ({"load": msgspec.structs.replace(LOAD, trace="u.csv", digest="11", prompt_tokens=7)},
         ["--trace: t.csv then, u.csv now"]),
        ({"load": msgspec.structs.replace(LOAD, digest="11", requests=9)},
         ["--trace: t.csv has other contents now", "--requests: 10 then, 9 now"]),
        ({"load": msgspec.structs.replace(LOAD, speed=2.5)}, ["--speed: 1 then, 2.5 now"]),
        ({"fingerprint_id": "xyz"}, ["the machine, its chip or their software is another one"]),
    ],
)  # fmt: skip
def test_what_changed_is_told_in_the_words_of_flags(change, told) -> None:
    assert changed(plan(), plan(**change)) == told
