"""Intervals, noise, winners and coupling: exact arithmetic."""

from __future__ import annotations

import math

import pytest
from tune_cases import CHUNK, RUNNING, VARIABLES, series

from anychip.bench.tune.advice import percent
from anychip.bench.tune.judge import (
    Interval,
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
    base, other = [100.0, 80.0, 60.0], [105.0, 85.0, 63.5]
    assert verdict(paired(other, base), 1) == "better"
    assert verdict(paired(other, base), -1) == "worse"
    assert verdict(unpaired(other, base), 1) == "noise"


def test_a_pair_is_compared_by_its_factor() -> None:
    found = paired([math.exp(v) for v in (1, 2, 3)], [1.0, 1.0, 1.0])
    assert math.log1p(found.value) == pytest.approx(2)
    assert math.log1p(found.low) == pytest.approx(2 - 4.303 / math.sqrt(3))
    slow = paired([10.0, 20.0, 15.0], [100.0, 150.0, 180.0])
    assert -1 < slow.low < slow.value < slow.high < 0


def test_differences_in_words() -> None:
    assert percent(Interval(0.25, -0.1, 0.5), 8.0) == "+25.0 % [-10.0, +50.0]"
    assert percent(Interval(0.25, -0.99, 50.0), 8.0) == "+25.0 % [-99.0, over +999]"
    assert percent(interval([0.25]), 8.0) == "+25.0 %"
    assert percent(Interval(2.0, 1.0, 3.0), 0.0) == "+2 from 0"


def test_where_a_figure_is_0_differences_are_compared() -> None:
    assert paired([0.0, 2.0, 4.0], [1.0, 1.0, 1.0]).value == 1.0
    assert paired([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]).value == 2.0
    with_zero = series((0.0, 1.0, 2.0)), series((1.0, 2.0, 3.0), EIGHT), series((1.0,) * 3, FOUR)
    assert coupling([*with_zero, series((2.0,) * 3, EIGHT, SMALL)], "throughput") is None


def test_an_interval_that_holds_0_is_noise() -> None:
    assert verdict(paired([101.0, 103.0, 97.0], [100.0, 101.0, 102.0]), 1) == "noise"


def test_welchs_interval() -> None:
    found = unpaired([10.0, 12.0, 14.0], [0.0, 2.0, 4.0])
    # Variances 4 and 4 of three each: 8 / 3 in all, and 4 degrees of freedom.
    assert found.value == 5.0  # as a share of the others' mean
    assert found.high - 5 == pytest.approx(2.776 * math.sqrt(8 / 3) / 2)
    logs = unpaired([math.exp(v) for v in (10, 12, 14)], [math.exp(v) for v in (1, 2, 3)])
    # Variances 4 and 1: 5 / 3 in all, (5/3)^2 / ((4/3)^2/2 + (1/3)^2/2) = 2.94.
    assert math.log1p(logs.value) == pytest.approx(10)
    assert math.log1p(logs.high) == pytest.approx(10 + 4.303 * math.sqrt(5 / 3))
    assert unpaired([2.0, 2.0], [1.0, 1.0]).low == pytest.approx(1.0)
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
        ((190.0, 192.5, 188.0), "they help each other"),
        ((140.0, 142.2, 138.0), "they get in each other's way"),
        ((168.0, 171.6, 164.5), "each gains its own"),
    ],
)
def test_coupling_is_what_both_gain_beyond_the_product(together, kind) -> None:
    alone = [
        series(BASE),
        series([1.4 * v for v in BASE], EIGHT),
        series([1.2 * v for v in BASE], SMALL),
    ]
    found = coupling([*alone, series(together, EIGHT, SMALL)], "throughput")
    assert found is not None
    assert found.kind == kind
    assert found.beyond.value == pytest.approx(sum(together) / 3 / 168 - 1, abs=0.002)
    assert coupling(alone, "throughput") is None
