"""How a case is judged: deviation, tokens, speed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anychip.bench.regress_baseline import Baseline, Known, updated
from anychip.bench.regress_judge import Rules, judge
from anychip.bench.regress_measure import Figures, Perplexity
from anychip.bench.regress_naming import Named
from anychip.bench.regress_report import Report, as_json, markdown
from anychip.bench.regress_speed import Speeds, Spread


def speeds(ttft: float = 10.0, tpot: float = 5.0, throughput: float = 1000.0) -> Speeds:
    """Intervals a tenth to each side."""
    return Speeds(*(Spread(x, 0.9 * x, 1.1 * x) for x in (ttft, tpot, throughput)))


TOKENS = ((5, 6, 7), (8, 9))
BEFORE = Known("bfloat16", 0.01, TOKENS[0], speeds=speeds())
NOW = Figures("bfloat16", 0.01, TOKENS, speeds=speeds())
NAMED = Named("rms_norm diverges", "Saved: a.npz; next: anychip replay-op a.npz --backend fake")
MADE = {
    "device": {"index": 0, "name": "a card"},
    "versions": {"driver": "1.2", "sdk": "3.4"},
    "anychip": "0.1.0",
}
HERE, ELSEWHERE = Rules(0.5, same_place=True), Rules(0.5, same_place=False)


def never() -> float:
    raise AssertionError("the case has a baseline")


def judged(before: Known | None = BEFORE, rules: Rules = HERE, **now):
    return judge("case", replace(NOW, **now), before, rules, never)


@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.0239])
def test_twice_the_baseline_and_one_rounding_are_within_the_limit(deviation: float) -> None:
    found = judged(deviation=deviation)
    assert found.ok
    assert found.limit == pytest.approx(0.02 + 2**-8)


@pytest.mark.parametrize("deviation", [0.024, float("inf"), float("nan")])
def test_more_is_worse(deviation: float) -> None:
    found = judged(deviation=deviation)
    assert found.diverges
    assert not found.ok


def test_wrong_token_is_worse_whatever_the_deviation() -> None:
    found = judged(wrong="token 3 is 5, not 7")
    assert found.failed == ("token 3 is 5, not 7",)
    assert not found.diverges


def test_speed_is_judged_on_the_same_fingerprint_alone() -> None:
    slow = speeds(ttft=30, tpot=15, throughput=300)
    found = judged(speeds=slow)
    assert found.slower
    assert found.failed == (
        "ttft 30 (27 to 33) ms, was 10 (9 to 11): under 0.5 of the speed",
        "tpot 15 (13.5 to 16.5) ms, was 5 (4.5 to 5.5): under 0.5 of the speed",
        "throughput 300 (270 to 330) tokens/s, was 1e+03 (900 to 1.1e+03): under 0.5 of it",
    )
    assert judged(speeds=slow, rules=ELSEWHERE).ok
    assert judged(speeds=slow, rules=Rules(0.0, same_place=True)).ok


def test_intervals_must_lie_apart() -> None:
    """24 * 0.9 * 0.5 is within what 10 may be; 25 * 0.9 * 0.5 is not."""
    assert judged(speeds=speeds(ttft=24)).ok
    assert not judged(speeds=speeds(ttft=25)).ok
    assert judged(speeds=speeds(throughput=410)).ok
    assert not judged(speeds=speeds(throughput=400)).ok


def test_interval_of_few_runs_is_all_of_them_and_of_many_a_part() -> None:
    """Five of 1 / 2 all on one side of the median: 1 in 16, over 5 %; six: 1 in 32."""
    assert Spread.of([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert Spread.of([float(n) for n in range(1, 9)]) == (4.5, 1.0, 8.0)
    assert Spread.of([float(n) for n in range(1, 10)]) == (5.0, 2.0, 8.0)
    wide = Spread.of([float(n) for n in range(1, 101)])
    assert (wide.low, wide.high) == (40.0, 61.0)


def test_interval_holds_the_median_as_often_as_it_says() -> None:
    noise = np.random.default_rng(0)
    spreads = [Spread.of(noise.standard_normal(12).tolist()) for _ in range(400)]
    share = sum(spread.low <= 0 <= spread.high for spread in spreads) / len(spreads)
    assert 0.93 < share < 1.0


def test_first_token_that_changed_is_told_and_no_failure() -> None:
    assert judged().changed is None
    found = judged(tokens=((5, 6, 8), (8, 3)), differs=2)
    assert (found.changed, found.ok) == (2, True)


def test_perplexity_may_change_by_roundings_and_not_by_a_bias() -> None:
    """Limit 0.0239 of log probabilities of size 6: e^0.143 - 1, a quarter of that."""
    assert judged(perplexity=Perplexity(103.8, 100.0, 6.0)).ok
    found = judged(perplexity=Perplexity(103.9, 100.0, 6.0))
    assert found.diverges
    assert "perplexity 103.9 is +0.039 of the reference's away" in found.failed[0]
    assert not judged(perplexity=Perplexity(96.1, 100.0, 6.0)).ok
    assert not judged(perplexity=Perplexity(float("nan"), 100.0, 6.0)).ok


@pytest.mark.parametrize(
    ("before", "note"),
    [(None, "no baseline"), (Known("float32", 1e-6), "the baseline is in float32")],
)
def test_without_a_baseline_in_this_dtype_rounding_sets_the_limit(before, note: str) -> None:
    found = judge("case", NOW, before, HERE, lambda: 0.005)
    assert found.limit == 0.005
    assert found.diverges
    assert found.notes == (note,)


def test_accepting_notes_changed_cases_alone() -> None:
    first = updated(None, baseline("one", {"a": BEFORE, "b": BEFORE}))
    changed = Known("bfloat16", 0.02)
    second = updated(first, baseline("two", {"a": changed, "b": BEFORE}))
    assert second.history[0]["added"] == 2
    assert set(second.history[1]["replaced"]) == {"a"}
    assert second.cases == {"a": changed, "b": BEFORE}


def baseline(reason: str, cases: dict[str, Known]) -> Baseline:
    return Baseline("fake", {"host": "x"}, "0123", "2026-01-01T00:00:00Z", reason, cases)


def test_report_tells_case_figures_and_what_diverges() -> None:
    bad = judged(deviation=0.5)
    lost = replace(judged(deviation=float("inf"), wrong="the device | left"), key="lost")
    report = Report("fake", "today", MADE, "0123", "Baseline", [bad, lost], {"case": NAMED})
    text = markdown(report)
    assert "# anychip regress: 2 cases on fake: 2 worse" in text
    assert "| case | bfloat16 | 0.5 | 0.01 | 0.0239 | - | - | 10.00 [9.00, 11.00] / 10.00 |" in text
    assert "| 1,000 [900, 1,100] / 1,000 | worse: " in text
    assert "* backend fake, device 0: a card" in text
    assert "driver 1.2, sdk 3.4" in text
    assert "the device \\| left" in text
    assert "* case\n  * deviation 0.5 is over" in text
    assert "  * rms_norm diverges\n  * Saved: a.npz; next: anychip replay-op a.npz" in text
    assert as_json(report)["outcomes"][1]["now"]["deviation"] is None


def test_report_tells_perplexity_and_tokens_that_differ() -> None:
    now = {"perplexity": Perplexity(100.01, 100.0, 6.0), "differs": 3}
    found = judged(replace(BEFORE, perplexity=100.0, change=-2e-5), **now)
    report = Report("fake", "today", MADE, "0123", "Baseline", [found])
    assert "| 3/- | 100.01 +1.0e-04 / -2.0e-05 |" in markdown(report)
    (outcome,) = as_json(report)["outcomes"]
    assert outcome["now"]["perplexity"]["change"] == pytest.approx(1e-4)


@pytest.mark.parametrize(("deviation", "end"), [(0.01, "not worse"), (0.5, "worse")])
def test_one_case_is_told_in_the_singular(deviation: float, end: str) -> None:
    report = Report("fake", "today", {}, "0123", "Baseline", [judged(deviation=deviation)])
    assert report.summary == f"1 case on fake: {end}"
