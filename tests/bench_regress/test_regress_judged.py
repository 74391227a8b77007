"""How a case is judged: deviation, tokens, speed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anychip.bench.regress_baseline import Baseline, Known, updated
from anychip.bench.regress_judge import Rules, judge
from anychip.bench.regress_measure import Figures, Named
from anychip.bench.regress_report import Report, as_json, markdown

BEFORE = Known("bfloat16", 0.01, prefill=1000.0, decode=100.0)
NOW = Figures("bfloat16", 0.01, prefill=1000.0, decode=100.0)
NAMED = Named("rms_norm diverges", "Saved: a.npz; next: anychip replay-op a.npz --backend fake")
HERE, ELSEWHERE = Rules(0.5, same_place=True), Rules(0.5, same_place=False)


def never() -> float:
    raise AssertionError("the case has a baseline")


def judged(before: Known | None = BEFORE, rules: Rules = HERE, **now):
    return judge("case", Figures(**{**as_fields(NOW), **now}), before, rules, never)


def as_fields(figures: Figures) -> dict[str, object]:
    return {name: getattr(figures, name) for name in ("dtype", "deviation", "prefill", "decode")}


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
    assert judged(prefill=501.0, decode=51.0).ok
    slow = judged(decode=49.0)
    assert slow.slower
    assert slow.failed == ("decode 49 tokens/s, was 100: under 0.5 of it",)
    assert judged(decode=1.0, rules=ELSEWHERE).ok
    assert judged(decode=1.0, rules=Rules(0.0, same_place=True)).ok


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
    assert set(second.history[1]["changed"]) == {"a"}
    assert second.cases == {"a": changed, "b": BEFORE}


def baseline(reason: str, cases: dict[str, Known]) -> Baseline:
    return Baseline("fake", {"host": "x"}, "0123", "2026-01-01T00:00:00Z", reason, cases)


def test_report_tells_case_figures_and_what_diverges() -> None:
    bad = judged(deviation=0.5)
    lost = replace(judged(deviation=float("inf"), wrong="the device | left"), key="lost")
    report = Report("fake", "today", {}, "0123", "Baseline", [bad, lost], {"case": NAMED})
    text = markdown(report)
    assert "# anychip regress: 2 cases on fake: 2 worse" in text
    assert "| case | bfloat16 | 0.5 | 0.01 | 0.0239 | 1,000/1,000 | 100/100 | worse: " in text
    assert "the device \\| left" in text
    assert "* case\n  * deviation 0.5 is over" in text
    assert "  * rms_norm diverges\n  * Saved: a.npz; next: anychip replay-op a.npz" in text
    assert as_json(report)["outcomes"][1]["now"]["deviation"] is None


@pytest.mark.parametrize(("deviation", "end"), [(0.01, "not worse"), (0.5, "worse")])
def test_one_case_is_told_in_the_singular(deviation: float, end: str) -> None:
    report = Report("fake", "today", {}, "0123", "Baseline", [judged(deviation=deviation)])
    assert report.summary == f"1 case on fake: {end}"
