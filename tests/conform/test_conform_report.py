"""The report: what is told, what is written, what two reports differ in; and the page about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conform_chips import subject

from anychip.chips.fake.registration import FakeChip
from anychip.config import ConfigError
from anychip.conform.diff import compare_reports, difference_text
from anychip.conform.index import CHECKS
from anychip.conform.kit import InProcess
from anychip.conform.proof import (
    Level,
    Proof,
    Status,
    failed,
    inconclusive,
    missing,
    passed,
    unsupported,
)
from anychip.conform.report import Report, read_report, report_of, to_json
from anychip.conform.report_text import to_markdown, to_text
from anychip.conform.result import Result
from anychip.conform.selection import Selection
from anychip.contract.registration import read_options
from anychip.ops.composed_error import MULTIPLE
from anychip.run.fingerprint import fingerprint_id, fingerprint_of

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
FACTS = {"chip": {"name": "granite"}, "versions": {"driver": "1.2"}, "python": "3.11"}

PROOFS: dict[str, Proof] = {
    "M1": passed("exact"),
    "M3": failed("lost 64 bytes"),
    "M7 fill": unsupported("memory.fill is an empty slot"),
    "O1 add": passed("9 cases", error=1e-7, tolerance=1.0),
    "O1 silu": passed("9 cases, tolerance 4 declared", error=1e-3, tolerance=4.0),
    "O2 add": inconclusive("the control is too near"),
    "O6 add": unsupported("memory.traffic is an empty slot"),
    "O6 silu": unsupported("memory.traffic is an empty slot"),
    "R1 exp": missing("no exp | in float32"),
}


def report(
    proofs=PROOFS, facts=FACTS, levels=tuple(Level), only: tuple[str, ...] = (), **changed: Proof
) -> Report:
    every = {**proofs, **{key.replace("_", " ", 1): proof for key, proof in changed.items()}}
    results = [Result(key, CHECKS[key.split()[0]][0], p, 0.25) for key, p in every.items()]
    return report_of(results, facts, Selection(levels, only))


def test_a_report_is_read_back_as_it_was_written(tmp_path):
    file = tmp_path / "r.json"
    written = report(M2=passed("", error=float("nan"), worst=float("inf")))
    file.write_text(to_json(written))
    assert read_report(str(file)) == written
    row = next(r for r in json.loads(file.read_text())["results"] if r["check"] == "M2")
    assert row["figures"] == {"error": None, "worst": None}


def test_the_summary_counts_every_status_of_every_level():
    assert report().summary == {
        "memory": dict(zip(("PASS", "FAIL", "UNSUPPORTED"), (1, 1, 1), strict=True))
        | {"MISSING": 0, "INCONCLUSIVE": 0},
        "operators": {"PASS": 2, "FAIL": 0, "UNSUPPORTED": 2, "MISSING": 1, "INCONCLUSIVE": 1},
    }


@pytest.mark.parametrize(
    "proof, ok",
    [
        (passed(""), True),
        (unsupported(""), True),
        (inconclusive(""), True),
        (failed(""), False),
        (missing(""), False),
    ],
)
def test_failures_and_missing_parts_alone_are_not_conforming(proof, ok):
    assert report({"M1": passed(""), "M2": proof}).ok is ok


def test_the_text_tells_what_nobody_may_overlook_and_condenses_the_rest():
    text = to_text(report())
    lines = text.splitlines()
    assert lines[0] == "granite (driver 1.2)"
    assert re.search(r"^  operators +2 +0 +2 +1 +1 +1.5$", text, re.M)
    order = [line.split()[0] for line in lines if line and line[0] != " "][1:]
    kinds = ["FAIL", "MISSING", "INCONCLUSIVE", "PASS", "UNSUPPORTED", "UNSUPPORTED"]
    assert order == [*kinds, "granite"]
    assert lines[-1].startswith("granite does not conform: ")
    assert "O1 silu: 9 cases, tolerance 4 declared" in text
    assert "UNSUPPORTED   O6 add, O6 silu: memory.traffic is an empty slot" in lines
    assert "M1" not in text


def test_declarations_that_differ_in_the_subject_alone_are_one_line():
    ops = ("add", "abs", "exp", "log", "neg")
    proofs = {f"O3 {op}": unsupported(f"{op!r} has no attribute") for op in ops}
    lines = to_text(report(proofs)).splitlines()
    assert lines[-2] == "UNSUPPORTED   O3 add, O3 abs, O3 exp and 2 more: it has no attribute"
    assert lines[-1].startswith("granite conforms: 5 UNSUPPORTED; fingerprint ")


def test_only_a_whole_run_says_that_the_chip_conforms():
    result = Result("M1", Level.MEMORY, passed("exact"))
    facts = {"chip": {"name": "granite"}}

    def last(selection: Selection, **how: bool) -> str:
        return to_text(report_of([result], facts, selection, **how)).splitlines()[-1]

    assert last(Selection()).startswith("granite conforms: 1 PASS; ")
    part = "granite keeps what was checked: 1 PASS"
    assert last(Selection((Level.MEMORY,))).startswith(part)
    assert last(Selection(only=("M1",))).startswith(part)
    assert last(Selection(), interrupted=True).startswith(f"{part}, then interrupted; ")


def test_what_an_interrupted_run_did_not_reach_is_not_gone():
    results = [Result(key, Level.MEMORY, passed("")) for key in ("M1", "M2")]
    before = report_of(results, {}, Selection())
    after = report_of(results[:1], {}, Selection(), interrupted=True)
    found = compare_reports(before, after)
    assert not found.worse and found.gone == []
    assert "run: to the end -> interrupted" in difference_text(found)


def test_what_follows_from_a_missing_operator_is_one_line_behind_it():
    proofs = {f"{id} exp": missing("nothing computes 'exp' here: see R1") for id in ("O1", "O5")}
    lines = to_text(report({"R1 exp": missing("exp is missing"), **proofs})).splitlines()
    wanted = "MISSING       O1 exp, O5 exp: nothing computes it here: see R1"
    assert [line for line in lines if line.startswith("MISSING")][1:] == [wanted]


def test_verbose_tells_every_result():
    text = to_text(report(), verbose=True)
    assert all(f"  {key}: {proof.text}" in text for key, proof in PROOFS.items())


def test_markdown_has_every_result_in_a_table_that_no_text_breaks():
    text = to_markdown(report())
    assert "| MISSING | R1 exp | no exp \\| in float32 | 0.25 |" in text
    assert all(f"| {key} |" in text for key in PROOFS)


def test_equal_reports_differ_in_nothing():
    found = compare_reports(report(), report())
    assert not found.worse and difference_text(found) == "nothing changed\n"


def test_a_difference_tells_facts_and_verdicts_the_worse_first():
    after = report(
        facts={**FACTS, "versions": {"driver": "1.3"}},
        M3=passed("mended"),
        O1_add=failed("error 3"),
    )
    found = compare_reports(report(), after)
    assert [(c.subject, c.before, c.after) for c in found.fingerprint] == [
        ("versions.driver", "1.2", "1.3")
    ]
    assert [(c.subject, c.worse) for c in found.status] == [("O1 add", True), ("M3", False)]
    assert found.worse and "  worse O1 add: PASS -> FAIL: error 3" in difference_text(found)


@pytest.mark.parametrize(
    "before, after, worse",
    [
        (passed(""), inconclusive(""), True),
        (passed(""), unsupported(""), True),
        (unsupported(""), missing(""), True),
        (failed(""), missing(""), False),
        (inconclusive(""), passed(""), False),
    ],
)
def test_worse_is_what_proves_less(before, after, worse):
    assert compare_reports(report(M2=before), report(M2=after)).worse is worse


@pytest.mark.parametrize(
    "after, grown",
    [(1.4e-7, False), (1.6e-7, True), (float("nan"), True), (0.0, False)],
)
def test_an_error_that_grew_is_worse_other_figures_are_not(after, grown):
    proof = passed("9 cases", error=after, tolerance=1.0, seconds=99.0)
    found = compare_reports(report(), report(O1_add=proof))
    assert found.worse is grown
    assert [change.subject for change in found.figures] == ["O1 add error"] * grown


def test_a_check_that_is_gone_or_new_and_bad_is_worse():
    without = {key: proof for key, proof in PROOFS.items() if key != "M1"}
    gone = compare_reports(report(), report(without))
    assert [c.subject for c in gone.gone] == ["M1"] and gone.worse
    assert not compare_reports(report(without), report()).worse
    assert compare_reports(report(), report(M4=failed(""))).worse


def test_only_what_both_reports_were_asked_for_is_compared():
    memory = {key: proof for key, proof in PROOFS.items() if key[0] == "M"}
    found = compare_reports(report(), report(memory, levels=(Level.MEMORY,)))
    assert not found.gone and not found.new and not found.worse
    assert not compare_reports(report(memory, levels=(Level.MEMORY,)), report()).new
    assert [change.subject for change in found.selection] == ["levels"]
    asked = {"only": ("M*",), "levels": (Level.MEMORY,)}
    less = compare_reports(report(memory, **asked), report({"M1": passed("")}, **asked))
    assert {change.subject for change in less.gone} == memory.keys() - {"M1"}
    single = compare_reports(report(), report({"M1": passed("")}, only=("M1",)))
    assert not single.gone and [change.subject for change in single.selection] == ["only"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("not json", "is no report of `anychip conform`"),
        ("[" * 100_000, "is no report of `anychip conform`"),
        ("[]", "is no report of `anychip conform`"),
        ('{"kind": "another"}', "is no report of `anychip conform`"),
        ('{"kind": "anychip conformance", "schema": 2}', "has schema 2, this anychip reads 1"),
        ('{"kind": "anychip conformance", "schema": 1}', "missing required field"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path, text, message):
    file = tmp_path / "r.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_report(str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_report(str(tmp_path / "r.json"))


def test_the_fingerprint_is_the_same_until_something_changes():
    options = read_options(FakeChip, {"memory": "1M"})
    chip = FakeChip(options)
    first = fingerprint_of(chip, 0, {"memory": "1M"})
    assert fingerprint_id(first) == fingerprint_id(fingerprint_of(chip, 0, {"memory": "1M"}))
    assert fingerprint_id(first) != fingerprint_id(fingerprint_of(chip, 0, {"memory": "2M"}))
    assert re.fullmatch("[0-9a-f]{12}", fingerprint_id(first))
    assert first["chip"]["distribution"] == "anychip"
    assert first["versions"].keys() >= {"numpy"} and first["host"]["cores"] > 0
    assert json.loads(json.dumps(first)) == first
    assert report().date and "date" not in json.dumps(first)


def test_the_page_has_a_row_for_each_check_and_names_its_gates():
    rows = re.findall(r"^\| ([A-Z]\d+)( \(gate\))? \| (\w+) \| (.*) \|$", PAGE.read_text(), re.M)
    assert {id: (Level(level), text) for id, _, level, text in rows} == CHECKS
    prover = InProcess(subject())
    gates = {check.id for level in Level for check in prover.checks(level) if check.gate}
    assert {id for id, gate, *_ in rows if gate} == gates
    assert all(f"| {status.value} |" in PAGE.read_text() for status in Status)
    assert f"The limit is {MULTIPLE:g} times the error" in PAGE.read_text()
