"""Intervals, noise, winners and coupling: exact arithmetic."""

from __future__ import annotations

import math

import pytest
from tune_cases import CHUNK, RUNNING, VARIABLES, series

from anychip.bench.tune.judge import (
    best_of_each,
    coupling,
    interval,
    paired,
    quantile,
    unpaired,
    verdict,
    winner,
)

FOUR, EIGHT, SMALL = (RUNNING, "4"), (RUNNING, "8"), (CHUNK, "512")
BASE = (100.0, 102.0, 98.0)


def test_students_quantiles() -> None:
    assert (quantile(1), quantile(2), quantile(2.9), quantile(20)) == (12.706, 4.303, 4.303, 2.086)
    assert 1.96 < quantile(1000) < quantile(60) < quantile(21) < quantile(20)
    assert quantile(60) == pytest.approx(2.000, abs=0.003)


def test_the_interval_of_a_mean() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.high == pytest.approx(2 + 4.303 / math.sqrt(3))
    assert found.low == pytest.approx(2 - 4.303 / math.sqrt(3))
    alone = interval([5.0])
    assert (alone.value, alone.low, alone.high) == (5.0, -math.inf, math.inf)
    assert verdict(alone, 1) == "noise"


def test_what_drifts_for_all_alike_is_no_noise_of_a_pair() -> None:
    base, other = [100.0, 80.0, 60.0], [105.0, 85.5, 64.5]
    assert verdict(paired(other, base), 1) == "better"
    assert verdict(paired(other, base), -1) == "worse"
    assert verdict(unpaired(other, base), 1) == "noise"


def test_an_interval_that_holds_0_is_noise() -> None:
    assert verdict(paired([101.0, 103.0, 97.0], [100.0, 101.0, 102.0]), 1) == "noise"


def test_welchs_interval() -> None:
    found = unpaired([10.0, 12.0, 14.0], [1.0, 2.0, 3.0])
    # Variances 4 and 1 of three each: 5 / 3 in all, (5/3)^2 / ((4/3)^2/2 + (1/3)^2/2) = 2.94.
    assert found.value == 10.0
    assert found.high - 10 == pytest.approx(4.303 * math.sqrt(5 / 3))
    assert unpaired([2.0, 2.0], [1.0, 1.0]).low == 1.0
    assert unpaired([2.0], [1.0, 1.0]).high == math.inf


def test_the_winner_beats_the_base_beyond_noise() -> None:
    base = series(BASE)
    lucky = series((99.0, 130.0, 97.0), FOUR)
    steady = series((110.0, 112.5, 108.0), EIGHT)
    assert winner([base, lucky], "throughput") is None
    assert winner([base, lucky, steady], "throughput") is steady
    assert winner([base], "throughput") is None


def test_less_is_better_of_latencies() -> None:
    base = series((0.5, 0.51, 0.49), name="ttft")
    slow = series((0.6, 0.61, 0.59), FOUR, name="ttft")
    fast = series((0.4, 0.41, 0.39), EIGHT, name="ttft")
    assert winner([base, slow], "ttft") is None
    assert winner([base, slow, fast], "ttft") is fast


def test_speed_of_lost_answers_does_not_win() -> None:
    assert (
        winner([series(BASE), series((200.0, 202.0, 199.0), FOUR, failed=1)], "throughput") is None
    )


def test_of_those_that_are_alike_the_one_with_fewest_changes_wins() -> None:
    base, alone = series(BASE), series((150.0, 152.5, 148.0), EIGHT)
    both = series((151.0, 151.5, 149.0), EIGHT, SMALL)
    assert winner([base, alone, both], "throughput") is alone
    better = series((170.0, 172.5, 168.0), EIGHT, SMALL)
    assert winner([base, alone, better], "throughput") is better


def test_the_best_of_each_variable() -> None:
    found = [
        series(BASE),
        series((150.0, 152.5, 148.0), FOUR),
        series((160.0, 162.5, 158.0), EIGHT),
        series((99.0, 103.0, 98.5), SMALL),
    ]
    assert best_of_each(found, VARIABLES, "throughput") == {RUNNING: "8"}


@pytest.mark.parametrize(
    ("together", "kind"),
    [
        ((180.0, 182.5, 178.0), "they help each other"),
        ((140.0, 142.2, 138.0), "they get in each other's way"),
        ((161.0, 161.5, 157.0), "their gains add up"),
    ],
)
def test_coupling_is_what_both_gain_beyond_the_sum(together, kind) -> None:
    alone = [
        series(BASE),
        series([v + 40 for v in BASE], EIGHT),
        series([v + 20 for v in BASE], SMALL),
    ]
    found = coupling([*alone, series(together, EIGHT, SMALL)], "throughput")
    assert found is not None
    assert found.kind == kind
    assert found.beyond.value == pytest.approx(sum(together) / 3 - 160)
    assert coupling(alone, "throughput") is None
