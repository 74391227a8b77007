"""The kit itself: order, gates, single checks, and checks that take their process down."""

from __future__ import annotations

from pathlib import Path

import pytest
from conform_chips import install_granite, subject
from kit_levels import bad, good, levels

from anychip.chips.fake.registration import FakeChip
from anychip.config import ConfigError, ServeConfig
from anychip.conform.index import CHECKS
from anychip.conform.isolation import Isolated
from anychip.conform.kit import InProcess, run_checks
from anychip.conform.proof import Check, Level, passed
from anychip.conform.result import Result, Watcher
from anychip.conform.selection import Selection, levels_of
from anychip.conform.subject import Subject

BROKEN_PROBE = """
    @classmethod
    def probe(cls):
        raise OSError("the driver is upset")
"""
EMPTY_PROBE = """
    @classmethod
    def probe(cls):
        from anychip.contract.registration import Probe
        return Probe((), "no card")
"""


def run(lists, *, only=(), chosen=tuple(Level), of=None) -> list[Result]:
    prover = InProcess(of or subject(), lists)
    return run_checks(prover, Selection(tuple(chosen), tuple(only)), Watcher())


def told(results) -> dict[str, str]:
    return {result.key: result.proof.status.value for result in results}


def test_every_id_of_the_index_is_listed_by_its_level():
    prover = InProcess(subject())
    assert {check.id for level in Level for check in prover.checks(level)} == set(CHECKS)


def test_a_gate_that_fails_ends_the_run_behind_its_level():
    lists = levels(
        registration={"P1!": good, "D1!": bad, "D2": good}, memory={"M1": good}, models={"E1": good}
    )
    results = run(lists)
    ended = dict.fromkeys(("build", "memory", "execution", "operators", "models"), "INCONCLUSIVE")
    assert told(results) == {"P1": "PASS", "D1": "FAIL", "D2": "PASS", **ended}
    assert {r.proof.text for r in results[3:]} == {"not run: D1 failed"}


def test_a_failure_that_is_no_gate_ends_nothing():
    assert told(run(levels(registration={"P2": bad}, memory={"M1": good}))) == {
        "P2": "FAIL",
        "M1": "PASS",
    }


def test_one_level_brings_the_gates_before_it():
    lists = levels(registration={"P1!": good, "P2": good}, memory={"M1": good}, models={"E1": good})
    assert told(run(lists, chosen=[Level.MEMORY])) == {"P1": "PASS", "M1": "PASS"}


def test_a_level_that_cannot_be_listed_fails_and_ends_the_run():
    def unlistable(of: Subject):
        raise RuntimeError("no such device")

    lists = levels(registration={"P1!": good}) | {Level.MEMORY: unlistable}
    results = run(lists, chosen=[Level.MEMORY, Level.MODELS])
    assert told(results) == {"P1": "PASS", "memory": "FAIL", "models": "INCONCLUSIVE"}
    assert "RuntimeError: no such device" in results[1].proof.text
    assert "level memory cannot be listed" in results[2].proof.text


def test_single_checks_run_without_gates_and_however_many_answer_to_the_pattern():
    lists = levels(
        registration={"D1!": bad}, operators={"O1 add": good, "O1 copy": good, "O3 add": good}
    )
    assert list(told(run(lists, only=["O1:a*"]))) == ["O1 add"]
    assert list(told(run(lists, only=["O1 copy", "*:add"]))) == ["O1 add", "O1 copy", "O3 add"]
    assert list(told(run(lists, only=["O1", "D1"]))) == ["D1", "O1 add", "O1 copy"]


@pytest.mark.parametrize(
    "only, message",
    [("Q7", "'Q7' matches no check"), ("O1:ad", "nearest is 'O1:add'"), ("O2", "no check of this")],
)
def test_a_pattern_that_means_nothing_is_refused(only, message):
    with pytest.raises(ConfigError, match=message):
        run(levels(operators={"O1 add": good}), only=[only])


def test_a_pattern_outside_the_levels_is_refused():
    with pytest.raises(ConfigError, match="'M1' matches no check of build"):
        Selection((Level.BUILD,), ("M1",))


def test_an_unknown_level_is_refused():
    with pytest.raises(ConfigError, match="'memroy' is no level; there are: registration"):
        levels_of(["memroy"])


@pytest.mark.parametrize("keys", [["Q1"], ["B1"], ["M1", "M1 "]])
def test_a_level_that_lists_what_the_index_does_not_is_a_mistake_of_the_kit(keys):
    checks = [Check(key.strip(), Level.MEMORY, good) for key in keys]
    with pytest.raises(ValueError, match="level memory lists"):
        run(levels() | {Level.MEMORY: lambda of: checks})


def test_what_a_check_raises_is_told_also_where_it_is_no_utf8():
    def breaks(on: Subject):
        raise OSError("bus \udcff")

    (result,) = run(levels(memory={"M1": breaks}), chosen=[Level.MEMORY])
    assert result.proof.text.encode() == b"OSError: bus \\udcff"


def test_what_a_check_raises_fails_it_and_the_next_one_has_the_device_opened_anew():
    of, seen = subject(), []

    def breaks(on: Subject):
        seen.append(on.chip)
        raise RuntimeError("kernel 7")

    def looks(on: Subject):
        seen.append(on.chip)
        return passed("")

    results = run(levels(memory={"M1": breaks, "M2": looks}), of=of)
    assert told(results) == {"M1": "FAIL", "M2": "PASS"}
    assert "RuntimeError: kernel 7" in results[0].proof.text
    assert seen[0] is not seen[1]


def test_a_device_that_cannot_be_closed_after_an_error_is_told():
    class Sticks(FakeChip):
        def close(self) -> None:
            raise OSError("busy")

    def breaks(on: Subject):
        raise RuntimeError(f"with {on.chip.name}")

    results = run(levels(memory={"M1": breaks, "M2": good}), of=subject(Sticks))
    assert told(results) == {"M1": "FAIL", "M2": "PASS"}
    assert "busy" in results[0].proof.text and "with fake" in results[0].proof.text


def isolated(name: str, timeout: float = 60, **config) -> list[Result]:
    with Isolated(ServeConfig(**{"backend": "fake", **config}), timeout, name) as prover:
        return run_checks(prover, Selection(), Watcher())


def test_a_process_that_dies_costs_its_check_alone_and_two_deaths_those_of_a_subject():
    found = {result.key: result.proof for result in isolated("kit_levels:CRASHING")}
    assert {key: proof.status.value for key, proof in found.items()} == {
        "M1": "PASS",
        "M2": "FAIL",
        "M3": "FAIL",
        "M4": "PASS",
        "M5": "FAIL",
        "O1 add": "FAIL",
        "O2 add": "FAIL",
        "O3 add": "INCONCLUSIVE",
        "O3 copy": "PASS",
    }
    assert found["M2"].text == "the process died of SIGSEGV during this check"
    assert found["M3"].text == "the process ended with exit code 7 during this check"
    assert found["M5"].text == "it does not hold"
    assert found["O3 add"].text == "not run: 2 checks of add lost their process"


def test_a_chip_that_always_crashes_comes_to_an_end():
    statuses = [r.proof.status.value for r in isolated("kit_levels:ALWAYS")]
    assert statuses == ["FAIL"] * 5 + ["INCONCLUSIVE"] * 4


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_check_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    monkeypatch.setenv("KIT_TEST_PIDS", str(pids))
    results = isolated("kit_levels:HANGING", 4)
    assert told(results) == {"M1": "FAIL", "M2": "PASS"}
    assert "no result within 4 s" in results[0].proof.text
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


def test_what_a_chip_prints_goes_to_standard_error(capfd):
    isolated("kit_levels:LOUD")
    said = capfd.readouterr()
    assert said.out == ""
    assert "a line of Python" in said.err and "a line of C" in said.err


@pytest.mark.parametrize(
    "granite, text",
    [
        ({"before": "os.abort()"}, "the process died of SIGABRT while the chip was imported"),
        ({"before": "import no_such_sdk"}, "No module named 'no_such_sdk'"),
        ({"body": BROKEN_PROBE}, "the driver is upset"),
        ({"body": EMPTY_PROBE}, "chip 'granite' is not available: no card"),
    ],
)
def test_a_chip_that_cannot_be_looked_at_fails(tmp_path, monkeypatch, granite, text):
    install_granite(tmp_path / "site", monkeypatch, **granite)
    with Isolated(ServeConfig(backend="granite"), 60) as prover:
        assert text in prover.fingerprint()["not opened"]
        results = run_checks(prover, Selection((Level.REGISTRATION, Level.MEMORY)), Watcher())
    assert told(results) == {"registration": "FAIL", "memory": "INCONCLUSIVE"}
    assert text in results[0].proof.text


def test_a_chip_that_crashes_when_it_is_opened_is_told_apart_from_one_that_is_not_there(
    tmp_path, monkeypatch
):
    body = "    def __init__(self, values):\n        os.abort()"
    install_granite(tmp_path / "site", monkeypatch, body=body)
    with Isolated(ServeConfig(backend="granite"), 60) as prover:
        seen = prover.fingerprint()
        results = run_checks(prover, Selection(only=("P1",)), Watcher())
    assert seen["not opened"] == "the process died of SIGABRT while the chip was opened"
    assert told(results) == {"P1": "FAIL"}


def test_a_wrong_option_or_device_is_the_users_mistake_not_the_chips():
    for wrong in ({"chip_option": {"memroy": "1M"}}, {"device_index": 7}):
        with (
            Isolated(ServeConfig(backend="fake", **wrong), 60) as prover,
            pytest.raises(ConfigError, match=r"no option 'memroy'|no device 7"),
        ):
            prover.fingerprint()
