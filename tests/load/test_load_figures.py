"""Figures of answers made by hand: each can be worked out on paper."""

from __future__ import annotations

import pytest

from anychip.bench.load.bootstrap import distribution, rate, ratio
from anychip.bench.load.calls import Answer, Failure, LoadError, Run
from anychip.bench.load.figures import Slo, figures_of, most_at_once


def answer(name: str, sent: float, first: float, gaps=(), **fields) -> Answer:
    """Sent when it is due; ends with its last piece."""
    last = first + sum(gaps)
    values = {
        "scheduled_s": sent,
        "sent_s": sent,
        "first_s": first,
        "last_s": last,
        "end_s": last,
        "gaps": tuple(gaps),
        "output_tokens": 1 + len(gaps),
        "prompt_tokens": 10,
        "counted": True,
        **fields,
    }
    return Answer(id=name, **values)


FAILED = answer("d", 3.0, 3.5, failure=Failure(kind="cut", text="gone"))
RUN = Run(
    loop="open",
    answers=(
        answer("a", 0.0, 1.0, (0.1, 0.3), cached_tokens=0),
        answer("b", 1.0, 1.5, (0.2,), cached_tokens=5, scheduled_s=0.75),
        answer("c", 2.0, 5.0, cached_tokens=10, asked_tokens=4),
        FAILED,
    ),
    seconds=5.0,
)


def test_latencies_are_of_whole_answers():
    found = figures_of(RUN)
    assert (found.requests, found.succeeded, found.short) == (4, 3, 1)
    assert found.ttft.mean.value == pytest.approx(1.5) and found.ttft.count == 3
    assert found.ttft.p50.value == pytest.approx(1.0)
    assert found.tpot.mean.value == pytest.approx(0.2) and found.tpot.count == 2
    assert found.itl.mean.value == pytest.approx(0.2) and found.itl.count == 3
    assert found.total.mean.value == pytest.approx((1.4 + 0.7 + 3.0) / 3)
    assert found.lateness.mean.value == pytest.approx(0.0625) and found.lateness.count == 4


def test_rates_count_what_was_made_in_the_time_of_the_run():
    found = figures_of(RUN)
    assert found.request_rate.value == pytest.approx(3 / 5)
    assert found.output_rate.value == pytest.approx(6 / 5)
    assert found.token_rate.value == pytest.approx(36 / 5)
    assert found.hit_rate.value == pytest.approx(15 / 30)
    assert found.errors == {"cut": 1} and found.error_examples == {"cut": "d: gone"}


def test_goodput_counts_whole_answers_within_the_limits_among_all_requests():
    found = figures_of(RUN, Slo(ttft_s=1.0, tpot_s=0.2))
    assert found.goodput.share.value == pytest.approx(2 / 4)
    assert found.goodput.per_second == pytest.approx(2 / 5)
    assert figures_of(RUN, Slo(tpot_s=0.19)).goodput.share.value == pytest.approx(1 / 4)
    assert figures_of(RUN).goodput is None
    with pytest.raises(LoadError, match="the limit of TTFT is 0 s; it must be above 0"):
        Slo(ttft_s=0.0)


def test_a_token_alone_has_no_time_per_token():
    assert RUN.answers[2].tpot_s is None
    all_at_once = answer("e", 0.0, 1.0, output_tokens=8)
    assert all_at_once.tpot_s is None


def test_most_at_once_counts_an_end_before_a_beginning_of_the_same_moment():
    one, two, three = (answer(n, s, e) for n, s, e in (("a", 0, 1), ("b", 1, 2), ("c", 1.5, 3)))
    assert most_at_once([one, two]) == 1
    assert most_at_once([one, two, three]) == 2


def test_percentiles_lie_between_neighbours_as_numpy_has_them():
    found = distribution([[float(n)] for n in range(101)])
    assert [found.p50.value, found.p90.value, found.p99.value] == pytest.approx([50, 90, 99])
    assert distribution([[1.0], [2.0]]).p90.value == pytest.approx(1.9)


def test_an_interval_holds_the_figure_and_narrows_with_more_requests():
    few = distribution([[float(n % 10)] for n in range(20)])
    many = distribution([[float(n % 10)] for n in range(2000)])
    for found in (few, many):
        assert found.mean.low < found.mean.value < found.mean.high
    assert many.mean.high - many.mean.low < (few.mean.high - few.mean.low) / 5
    # The standard error of the mean is 2.87 / sqrt(2000): 19 of 20 lie within 1.96 of it.
    assert many.mean.high - many.mean.low == pytest.approx(2 * 1.96 * 2.87 / 2000**0.5, rel=0.2)


def test_values_of_one_request_are_drawn_together():
    """Ten requests of a hundred equal gaps know less than a thousand requests of one gap."""
    grouped = distribution([[float(n)] * 100 for n in range(10)])
    apart = distribution([[float(n)] for n in range(10) for _ in range(100)])
    assert grouped.mean.value == apart.mean.value
    assert grouped.mean.high - grouped.mean.low > 5 * (apart.mean.high - apart.mean.low)


def test_one_request_has_no_interval():
    found = distribution([[2.0]])
    assert (found.mean.low, found.mean.value, found.p99.high) == (2.0, 2.0, 2.0)
    assert distribution([]) is None and distribution([[]]) is None


def test_a_steady_rate_has_a_narrow_interval_and_a_burst_a_wide_one():
    steady = rate([n / 100 for n in range(1000)], [1.0] * 1000, 10.0)
    burst = rate([0.01] * 1000, [1.0] * 1000, 10.0)
    assert steady.value == burst.value == pytest.approx(100)
    assert steady.high - steady.low < 1 < burst.high - burst.low
    assert rate([], [], 1.0) is None and ratio([1.0], [0.0]) is None


def test_a_run_without_requests_tells_nothing():
    with pytest.raises(LoadError, match="no request was answered, 0 were under way"):
        figures_of(Run(loop="open", answers=(), seconds=0.0))
