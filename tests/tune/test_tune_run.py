"""Both passes on scripted runs: recommended, kept, compared, interrupted and gone on with."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path

import msgspec
import pytest
from tune_cases import CHUNK, RUNNING, budget, plan, ran

from anychip.bench.load.figures import Slo
from anychip.bench.load.scaling import Scaling
from anychip.bench.load.traces import Trace
from anychip.bench.tune.kept import KeptError, compare, load, save
from anychip.bench.tune.measure import Asked
from anychip.bench.tune.plan import BASE
from anychip.bench.tune.plot import draw
from anychip.bench.tune.prepare import Prepared, Question, TuneError
from anychip.bench.tune.servers import ServerFailed
from anychip.bench.tune.table import closing, columns, command, head, markdown, rows
from anychip.bench.tune.tune import so_far, tune
from anychip.config import ServeConfig

GAINS = {(RUNNING, "4"): 20.0, (RUNNING, "8"): 50.0, (CHUNK, "512"): 10.0}


def prepared(folder: Path, **changes) -> Prepared:
    config = ServeConfig(backend="fake", max_running_requests=2)
    trace = Trace(kind="azure", requests=())
    files = {"file": folder / "t.csv", "output": folder / "out"}
    asked = Question(config=config, local=config, trace=trace, **files)
    values = {"plan": plan(), "budget": budget(), "doctor": "doctor: nothing is red"}
    asking = Asked(trace=trace, scaling=Scaling(), speed=1.0, slo=Slo())
    values |= {"asked": asked, "load": asking, "forced": False, "notes": ()}
    return Prepared(**{**values, **changes})


class Scripted:
    """Throughput of 100 plus each change's gain, a little of noise, and what both gain together."""

    def __init__(self, gains=GAINS, *, both: float = 0.0, stop_at: int | None = None) -> None:
        self.gains, self.both, self.stop_at = gains, both, stop_at
        self.words: list[tuple[str, ...]] = []
        self.random = random.Random(1)

    def __call__(self, words, log: Path):
        assert log.parent.is_dir()
        if len(self.words) == self.stop_at:
            raise KeyboardInterrupt
        self.words.append(tuple(words))
        pairs = set(itertools.pairwise(words))
        found = [gain for change, gain in self.gains.items() if change in pairs]
        beyond = self.both if len(found) > 1 else 0.0
        return ran(100.0 + sum(found) + beyond + self.random.gauss(0, 0.5))


class Heard:
    """What the watcher was told."""

    def __init__(self) -> None:
        self.lines: list[tuple] = []

    def begins(self, stage, number, of, name, left) -> None:
        self.lines.append((stage, number, of, name, left is None))

    def ended(self, done) -> None:
        pass


def test_the_best_of_each_is_measured_again_and_recommended(tmp_path) -> None:
    script, heard = Scripted(both=15.0), Heard()
    kept = tune(prepared(tmp_path), heard, script)
    assert kept.advice.configuration.label == f"{RUNNING} 8 {CHUNK} 512"
    assert command(kept) == f"anychip serve --backend fake {RUNNING} 8 {CHUNK} 512"
    assert kept.advice.coupling is not None
    assert kept.advice.coupling.kind == "they help each other"
    assert "throughput +7" in kept.advice.reasons[0]
    assert len(script.words) == 3 * 4 + 3 * 4
    assert script.words[0] == ("--backend", "fake", RUNNING, "2")
    assert heard.lines[0] == ("one by one", 1, 12, "base", True)
    assert heard.lines[4] == ("one by one", 5, 12, f"{CHUNK} 512", False)
    assert heard.lines[12] == ("together", 13, 24, "base", False)


def test_no_more_is_changed_than_helps(tmp_path) -> None:
    kept = tune(prepared(tmp_path), Heard(), Scripted(both=-10.0))
    assert kept.advice.configuration.label == f"{RUNNING} 8"
    assert kept.advice.coupling is not None
    assert kept.advice.coupling.kind == "they get in each other's way"
    assert any("less is changed" in reason for reason in kept.advice.reasons)


def test_nothing_beats_the_base_is_a_result(tmp_path) -> None:
    script = Scripted(dict.fromkeys(GAINS, 0.1))
    kept = tune(prepared(tmp_path), Heard(), script)
    assert kept.advice.configuration == BASE
    assert kept.advice.words == plan().base
    assert "nothing beats the base's throughput beyond noise" in kept.advice.reasons[0]
    assert len(script.words) == 12
    assert "noise" in rows(kept, "one by one")[1][2]


def test_luck_of_the_first_pass_is_found_out_in_the_second(tmp_path) -> None:
    script = Scripted()

    def sobering(words, log):
        if len(script.words) == 12:
            script.gains = {}
        return script(words, log)

    kept = tune(prepared(tmp_path), Heard(), sobering)
    assert kept.advice.configuration == BASE
    assert "it was noise" in kept.advice.reasons[0]


def test_what_cannot_run_is_told_and_not_tried_again(tmp_path) -> None:
    script = Scripted()

    def failing(words, log):
        if "8" in words:
            script.words.append(tuple(words))
            raise ServerFailed("the server ended with 1; the end of x:\n  no memory")
        return script(words, log)

    kept = tune(prepared(tmp_path), Heard(), failing)
    assert kept.advice.configuration.changes[0] == (RUNNING, "4")
    assert sum("8" in words for words in script.words) == 1
    assert "could not run: the server ended with 1" in kept.advice.reasons[-1]
    assert rows(kept, "one by one")[2][1] == "could not run"


def test_a_base_that_does_not_run_ends_it(tmp_path) -> None:
    def dead(words, log):
        raise ServerFailed("no such chip")

    with pytest.raises(TuneError, match=r"the base does not run.*no such chip"):
        tune(prepared(tmp_path), Heard(), dead)


def test_an_objective_that_nobody_measured_is_told(tmp_path) -> None:
    script = Scripted()

    def short(words, log):
        return msgspec.structs.replace(script(words, log), tpot_s=None)

    with pytest.raises(TuneError, match="--objective: tpot: no answer of the base has one"):
        tune(prepared(tmp_path, plan=plan(objective="tpot")), Heard(), short)


@pytest.mark.parametrize("stop_at", [2, 7, 17])
def test_what_was_measured_is_kept_and_gone_on_with(tmp_path, stop_at) -> None:
    ready = prepared(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tune(ready, Heard(), Scripted(both=15.0, stop_at=stop_at))
    partial = so_far(ready)
    assert (partial is None) == (stop_at < 4)
    if partial is not None:
        assert "go on with --resume" in partial.advice.reasons[0]
    again = dataclasses.replace(ready, asked=dataclasses.replace(ready.asked, resume=True))
    rest = Scripted(both=15.0)
    kept = tune(again, Heard(), rest)
    assert len(rest.words) == 24 - stop_at
    assert kept.advice.configuration.label == f"{RUNNING} 8 {CHUNK} 512"


def test_the_report_says_first_that_the_doctor_was_overridden(tmp_path) -> None:
    red = "doctor: RED, tuned because of --force: memory: all wrong"
    kept = tune(prepared(tmp_path, forced=True, doctor=red), Heard(), Scripted())
    assert head(kept)[0].startswith("THE DOCTOR FOUND THIS CHIP NOT SOUND")
    assert "all wrong" in markdown(kept).splitlines()[2]


def test_the_report_has_both_tables_and_the_line(tmp_path) -> None:
    kept = tune(prepared(tmp_path), Heard(), Scripted(both=15.0))
    text = markdown(kept)
    assert "## One variable at a time" in text
    assert "## Second pass" in text
    assert f"```\n{command(kept)}\n```" in text
    assert columns(kept)[1] == "throughput, tokens/s"
    base, four = rows(kept, "one by one")[:2]
    assert base[2] == ""
    assert four[2].endswith("better")
    assert closing(kept)[-1] == command(kept)
    draw(kept, tmp_path / "tune.png")
    assert (tmp_path / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_a_load_that_is_too_light_is_told(tmp_path) -> None:
    script = Scripted()

    def light(words, log):
        return msgspec.structs.replace(script(words, log), seconds=1.02, late_s=0.4)

    kept = tune(prepared(tmp_path), Heard(), light)
    assert "the base kept up with the trace" in kept.notes[0]
    assert "sent a call 0.40 s late" in kept.notes[1]


def test_tables_are_kept_and_compared(tmp_path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    before = tune(prepared(tmp_path / "old"), Heard(), Scripted())
    slower = {**GAINS, (RUNNING, "8"): 5.0}
    new = dataclasses.replace(
        budget_of(tmp_path / "new"),
        plan=plan(fingerprint_id="def"),
        doctor="doctor: nothing is red",
    )
    after = tune(new, Heard(), Scripted(slower))
    save(before, tmp_path / "old")
    found = compare(load(tmp_path / "old"), after)
    verdicts = {(c.stage, c.configuration, c.figure): c.verdict for c in found.changes}
    assert verdicts["one by one", f"{RUNNING} 8", "throughput"] == "worse"
    assert verdicts["one by one", f"{RUNNING} 4", "throughput"] == "noise"
    assert found.facts == ("versions driver: 1, now 2",)
    assert f"together: {RUNNING} 4" in found.alone
    assert "## Compared" in markdown(after, found)


def budget_of(folder: Path) -> Prepared:
    """The same chip with another driver."""
    fingerprint = {"chip": {"name": "fake"}, "versions": {"driver": "2"}}
    return prepared(folder, budget=msgspec.structs.replace(budget(), fingerprint=fingerprint))


def test_what_is_no_table_or_of_another_load_is_not_compared(tmp_path) -> None:
    kept = tune(prepared(tmp_path), Heard(), Scripted())
    other = msgspec.structs.replace(plan().load, speed=2.0)
    faster = msgspec.structs.replace(kept, plan=plan(load=other))
    with pytest.raises(KeptError, match=r"another one \(speed: 1.0, now 2.0\)"):
        compare(kept, faster)
    with pytest.raises(KeptError, match="cannot be read"):
        load(tmp_path / "nowhere")
    save(msgspec.structs.replace(kept, version=99), tmp_path)
    with pytest.raises(KeptError, match="version 99; this AnyChip reads"):
        load(tmp_path)
    (tmp_path / "tune.json").write_text("[]")
    with pytest.raises(KeptError, match="is no table of anychip tune"):
        load(tmp_path / "tune.json")
