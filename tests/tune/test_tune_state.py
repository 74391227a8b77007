"""Runs that are kept, gone on with, and put together."""

from __future__ import annotations

import pytest
from tune_cases import RUNNING, plan, ran

from anychip.bench.tune.plan import BASE, Configuration
from anychip.bench.tune.state import NAME, Done, Runs, StateError

FOUR = Configuration(((RUNNING, "4"),))


def done(repeat: int, one: Configuration, throughput: float = 1.0, **changes) -> Done:
    values = {"stage": "one by one", "measured": ran(throughput), "at": 1.0, "took_s": 2.0}
    return Done(repeat=repeat, configuration=one, **{**values, **changes})


def test_runs_are_found_again(tmp_path) -> None:
    with Runs(tmp_path / "new", plan(), resume=False) as runs:
        runs.add(done(0, BASE, 3.0))
    with Runs(tmp_path / "new", plan(), resume=True) as runs:
        found = runs.find("one by one", 0, BASE)
        assert found is not None
        assert found.measured == ran(3.0)
        assert runs.find("one by one", 1, BASE) is None
        assert runs.find("together", 0, BASE) is None


def test_a_line_that_a_crash_tore_is_left_out_and_written_over(tmp_path) -> None:
    with Runs(tmp_path, plan(), resume=False) as runs:
        runs.add(done(0, BASE))
        runs.add(done(0, FOUR, measured=None, broken="a long reason " * 50))
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-20])
    with Runs(tmp_path, plan(), resume=True) as runs:
        assert runs.find("one by one", 0, FOUR) is None
        runs.add(done(0, FOUR, 7.0))
    assert path.read_bytes().endswith(b"}\n")  # nothing is left of the torn one
    with Runs(tmp_path, plan(), resume=True) as runs:
        assert [each.configuration for each in runs.done] == [BASE, FOUR]


def test_nothing_is_measured_over_other_runs(tmp_path) -> None:
    with Runs(tmp_path, plan(), resume=False):
        pass
    with pytest.raises(StateError, match=r"--output.*go on with --resume"):
        Runs(tmp_path, plan(), resume=False)
    with pytest.raises(StateError, match=r"\(--repeats: 3 then, 5 now\); give them as"):
        Runs(tmp_path, plan(repeats=5), resume=True)
    (tmp_path / NAME).write_text('{"format": "other"}\n')
    with pytest.raises(StateError, match="holds no runs of a tune"):
        Runs(tmp_path, plan(), resume=True)


def test_series_are_of_repeats_that_all_have(tmp_path) -> None:
    with Runs(tmp_path, plan(), resume=False) as runs:
        for each in (done(0, BASE, 1.0), done(0, FOUR, 2.0), done(1, FOUR, 3.0)):
            runs.add(each)
        base, four = runs.series("one by one", [BASE, FOUR])
        assert base.values["throughput"] == (1.0,)
        assert four.values["throughput"] == (2.0,)
        assert "goodput" not in four.values
        assert runs.series("together", [BASE, FOUR]) == []


def test_one_that_cannot_run_does_not_stop_the_others(tmp_path) -> None:
    with Runs(tmp_path, plan(), resume=False) as runs:
        runs.add(done(0, BASE, 1.0))
        runs.add(done(0, FOUR, measured=None, broken="no memory"))
        base, four = runs.series("one by one", [BASE, FOUR])
        assert base.values["throughput"] == (1.0,)
        assert (four.broken, four.values) == ("no memory", {})
