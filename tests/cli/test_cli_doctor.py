"""`anychip doctor`: green, yellow and red lines, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crooked_chip
import tiny_models
from anychip.__main__ import main
from anychip.chips.fake.build import FakeBuild
from anychip.chips.fake.memory import FakeMemory
from anychip.cli import doctor as cli_doctor
from anychip.contract.build import Compatibility, Finding, Verdict
from anychip.contract.compile import build_error
from anychip.contract.registration import Probe
from anychip.ops.saved import load
from anychip.run import doctor, version_matrix

LACKING = ("--chip-option=primitives_only=true", "--chip-option=without=rsqrt")


@pytest.fixture(scope="module", autouse=True)
def crooked(tmp_path_factory):
    with crooked_chip.installed(tmp_path_factory.mktemp("site")):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def examined(capsys, *words: str) -> tuple[int, dict[str, dict]]:
    """Exit code, and the findings by name."""
    code = main(["doctor", "--json", *words])
    return code, {found["name"]: found for found in json.loads(capsys.readouterr().out)}


def verdicts(found: dict[str, dict]) -> dict[str, str]:
    return {name: finding["verdict"] for name, finding in found.items()}


def test_sound_chip_is_green(capsys) -> None:
    code, found = examined(capsys, "--backend", "fake")
    assert code == 0
    assert set(verdicts(found).values()) == {"good"}
    assert {"contract", "probe", "open", "versions", "copies", "memory"} <= set(found)
    assert found["contract"]["text"].endswith(": compatible")
    assert "model" not in found


def test_table_shows_colours_and_next_steps(capsys) -> None:
    assert main(["doctor", "--backend", "nope"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "│ red " in lines[0] and "no chip 'nope' is installed" in lines[0]
    assert "│ next: see `anychip chips`" in lines[1]
    (memory,) = [line for line in lines if "memory" in line]
    assert "│ yellow " in memory
    assert "not looked at" in memory
    assert lines[-1].startswith("red: 1, yellow: 10; ")


def test_lines_are_as_wide_as_columns_says_and_a_step_is_never_cut(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor", "--backend", "nope"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 60 < len(" ".join(lines[:2]))
    step = "anychip " + "x" * 200
    drawn = list(cli_doctor._lines(Finding("x", Verdict.BAD, "first\n" + "word " * 30, step), 60))
    assert drawn[0] == "first" and drawn[-1] == f"next: {step}" and len(drawn) > 4


def test_findings_are_told_before_the_next_look_is_taken(capsys, monkeypatch) -> None:
    seen = []

    def look(cls, device, timeout):
        seen.append(capsys.readouterr().out)
        return Finding("device", Verdict.GOOD, "fine")

    monkeypatch.setattr(crooked_chip.CrookedChip, "check_device", classmethod(look))
    assert main(["doctor", "--backend", "crooked"]) == 0
    (before,) = seen
    assert "│ contract " in before and "│ probe " in before


def test_last_line_names_the_next_step(capsys, folder) -> None:
    def last(*words: str) -> str:
        assert main(["doctor", "--backend", "fake", *words]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last() == (
        "nothing is wrong; no operator of a model was run (add --model-path); "
        "next: anychip conform --backend fake"
    )
    checked = last("--model-path", str(folder), "--check-ops", "--chip-option", "memory=1G")
    assert "add --check-ops" not in checked
    assert checked.endswith("next: anychip conform --backend fake --chip-option memory=1G")


def test_device_that_is_not_there_is_red_and_ends_the_looks(capsys) -> None:
    code, found = examined(capsys, "--backend", "fake", "--device-index", "7")
    assert code == 1
    assert found["probe"]["verdict"] == "bad"
    assert "no device 7; there is 0: a device in software" in found["probe"]["text"]
    assert found["memory"]["text"] == "not looked at: 'probe' is not sound"


def test_reason_of_an_empty_probe_is_told(capsys, monkeypatch) -> None:
    empty = classmethod(lambda cls: Probe((), "the driver is not loaded"))
    monkeypatch.setattr(crooked_chip.CrookedChip, "probe", empty)
    code, found = examined(capsys, "--backend", "crooked")
    assert code == 1
    assert found["probe"]["text"] == "no device: the driver is not loaded"
    assert found["probe"]["step"] == (
        "mend what the reason names, then: anychip doctor --backend crooked"
    )


def test_an_empty_probe_that_names_no_driver_has_the_drivers_step(capsys, monkeypatch) -> None:
    empty = classmethod(lambda cls: Probe((), "no driver: init gave 9"))
    monkeypatch.setattr(crooked_chip.CrookedChip, "probe", empty)
    _, found = examined(capsys, "--backend", "crooked")
    assert found["probe"]["step"].startswith("install the vendor's kernel driver, or load it")


def test_an_unknown_option_is_told_as_such(capsys) -> None:
    code, found = examined(capsys, "--backend", "fake", "--chip-option", "memry=1G")
    assert code == 1
    assert found["options"]["text"].startswith("chip 'fake' has no option 'memry'; it has: ")
    assert found["options"]["step"].startswith("correct the option; see `anychip chips -v`")
    assert found["probe"]["text"] == "not looked at: 'options' is not sound"


def test_what_is_to_be_installed_is_the_next_step(capsys, monkeypatch) -> None:
    empty = classmethod(lambda cls: Probe((), "the SDK is missing: pip install 'sdk[all]'; go"))
    monkeypatch.setattr(crooked_chip.CrookedChip, "probe", empty)
    _, found = examined(capsys, "--backend", "crooked")
    assert found["probe"]["step"] == "pip install 'sdk[all]'"


def test_compiler_error_leads_to_its_source_line(capsys, monkeypatch) -> None:
    said = "/usr/bin/g++ -c k.c ended with status 1: k.c: In function 'f':\nk.c:3:9: error: no 'x'"

    def explode(cls, device, options):
        raise build_error("crooked", f"{said}\n    3 |  x\nk.c:8:1: error: more")

    monkeypatch.setattr(crooked_chip.CrookedChip, "open", classmethod(explode))
    _, found = examined(capsys, "--backend", "crooked")
    assert found["open"]["step"] == "mend k.c:3: no 'x'"


def test_whatever_a_chip_raises_is_a_line(capsys, monkeypatch, folder) -> None:
    def explode(cls, device, timeout):
        raise OSError("the bus is gone")

    monkeypatch.setattr(crooked_chip.CrookedChip, "check_device", classmethod(explode))
    code, found = examined(capsys, "--backend", "crooked", "--model-path", str(folder))
    assert code == 1
    assert found["device"]["text"] == "OSError: the bus is gone"
    assert found["device"]["step"]
    assert found["model"]["text"] == "not looked at: 'device' is not sound"


def test_chip_that_ends_the_program_is_no_sound_chip(capsys, monkeypatch) -> None:
    def leave(cls, device, options):
        raise SystemExit(0)

    monkeypatch.setattr(crooked_chip.CrookedChip, "open", classmethod(leave))
    code, found = examined(capsys, "--backend", "crooked")
    assert (code, found["open"]["text"]) == (1, "SystemExit: 0")


def test_chip_that_does_not_close_loses_no_findings(capsys, monkeypatch) -> None:
    def stuck(self):
        raise OSError("handle \udcff is gone")

    monkeypatch.setattr(crooked_chip.CrookedChip, "close", stuck)
    code, found = examined(capsys, "--backend", "crooked")
    assert (code, found["close"]["text"]) == (1, "OSError: handle \\udcff is gone")
    assert found["memory"]["verdict"] == "good"


def test_wrong_option_is_told_by_the_first_look_that_needs_it(capsys) -> None:
    code, found = examined(capsys, "--backend", "fake", "--chip-option", "memory=much")
    assert code == 1
    assert "say a number of bytes" in found["fake device 0"]["text"]


def test_bytes_that_change_on_the_way_are_red(capsys, monkeypatch) -> None:
    sound = FakeMemory.copy_out

    def changed(self, source, target):
        sound(self, source, target)
        target.cast("B")[0] ^= 1

    monkeypatch.setattr(FakeMemory, "copy_out", changed)
    code, found = examined(capsys, "--backend", "crooked")
    assert code == 1
    assert found["copies"]["text"] == "1 of 1,048,576 bytes came back changed"


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ((100, 50, 50, 50), Verdict.GOOD),
        ((100, 95, 5, 5), Verdict.UNKNOWN),
        ((100, 50, 50, 60), Verdict.BAD),
        ((100, 0, 101, 50), Verdict.BAD),
    ],
)
def test_memory_info_is_judged(numbers, verdict) -> None:
    info = doctor.MemoryInfo(*(n * 2**20 for n in numbers), "a test")
    assert doctor._memory_finding(info).verdict is verdict


@pytest.mark.parametrize(
    ("versions", "verdict"), [({"sdk": "1"}, "bad"), ({"sdk": "2"}, "good"), ({}, "unknown")]
)
def test_version_matrix_is_consulted(versions, verdict, capsys, monkeypatch) -> None:
    class Listed(FakeBuild):
        def versions(self):
            return versions

        def matrix(self):
            rows = {"1": Verdict.BAD, "2": Verdict.GOOD}
            return tuple(Compatibility({"sdk": n}, v, "the notes") for n, v in rows.items())

    inside = crooked_chip.CrookedChip.__init__

    def listed(self, values):
        inside(self, values)
        self.build = Listed()

    monkeypatch.setattr(crooked_chip.CrookedChip, "__init__", listed)
    code, found = examined(capsys, "--backend", "crooked")
    assert found["version matrix"]["verdict"] == verdict
    assert code == (verdict == "bad")


GOOD, BAD, DOUBT = Verdict.GOOD, Verdict.BAD, Verdict.UNKNOWN


def row(verdict: Verdict, **versions: str) -> Compatibility:
    return Compatibility(versions, verdict, "the notes")


def test_no_step_leads_to_versions_that_another_row_doubts() -> None:
    matrix = (
        *(row(GOOD, driver="5.1", tool="2"), row(GOOD, driver="5.9"), row(DOUBT, driver="5.[0-4]")),
        row(GOOD, driver="6.1", tool="7"),
    )
    assert version_matrix.good_rows(matrix, ["driver", "tool"]) == (
        ", recorded as good: driver 6.1, tool 7; or driver 5.9"
    )


def test_lines_of_the_matrix_have_one_step_the_worst_ones() -> None:
    class Listed(FakeBuild):
        def versions(self):
            return {"driver": "4", "sdk": "5", "call": "4.1", "tool": "1"}

        def matrix(self):
            bad = row(BAD, driver="4", sdk="5")
            good = row(GOOD, driver="5", sdk="5"), row(GOOD, call="3", tool="9")
            there = row(GOOD, tool="1"), row(GOOD, sdk="5")  # what is there is no way out
            return (row(DOUBT, call="4.1"), *there, bad, *good)

    _, doubted, *fine, bad = version_matrix.version_findings(Listed())
    assert (doubted.verdict, bad.verdict) == (DOUBT, BAD)
    assert [(f.verdict, f.step) for f in fine] == [(GOOD, "")] * 2
    together = "install versions that go together, recorded as good: driver 5, sdk 5"
    assert doubted.step == bad.step == together


def test_model_is_planned(capsys, folder) -> None:
    code, found = examined(capsys, "--backend", "fake", "--model-path", str(folder))
    assert code == 0
    assert "llama, 2 layers" in found["model"]["text"]
    assert "longest sequence 512 of 512 tokens" in found["memory plan"]["text"]
    assert "checked steps" not in found


def test_missing_operator_is_red(capsys, folder) -> None:
    words = ["--backend", "fake", "--model-path", str(folder), *LACKING]
    code, found = examined(capsys, *words)
    assert code == 1
    assert found["operator rsqrt"]["verdict"] == "bad"
    assert "not looked at" in found["memory plan"]["text"]


def test_composed_and_host_operators_are_yellow(capsys, folder) -> None:
    words = ["--backend", "fake", "--model-path", str(folder), "--allow-host-ops", *LACKING]
    code, found = examined(capsys, *words)
    assert code == 0
    assert "paged_attention" in found["slow operators"]["text"]
    assert "rsqrt" in found["host operators"]["text"]
    assert {found[n]["verdict"] for n in ("slow operators", "host operators")} == {"unknown"}


def test_memory_that_does_not_suffice_is_red(capsys, folder) -> None:
    words = ["--backend", "fake", "--model-path", str(folder), "--chip-option", "memory=1M"]
    code, found = examined(capsys, *words)
    assert code == 1
    assert "not enough memory" in found["memory plan"]["text"]


def test_checked_steps_of_a_sound_chip_are_green(capsys, folder) -> None:
    words = ["--backend", "fake", "--model-path", str(folder), "--check-ops"]
    code, found = examined(capsys, *words)
    assert code == 0
    assert "none diverges" in found["checked steps"]["text"]


def test_first_divergence_is_red_with_its_file(capsys, folder, tmp_path) -> None:
    words = ["--backend", "crooked", "--chip-option", "wrong=rms_norm", "--check-ops"]
    words += ["--model-path", str(folder), "--check-ops-dir", str(tmp_path)]
    code, found = examined(capsys, *words)
    assert code == 1
    assert "fake.rms_norm" in found["operator rms_norm"]["text"]
    (file,) = tmp_path.iterdir()
    assert f"anychip replay-op {file} --backend crooked" in found["operator rms_norm"]["step"]
    assert load(file).op == "rms_norm"


@pytest.mark.parametrize(
    ("option", "limit", "text"),
    [("deadly", "300", "killed by SIGSEGV"), ("endless", "5", "no answer within 5 s")],
)
def test_kernel_that_crashes_or_hangs_costs_its_line_alone(
    option, limit, text, capsys, folder, monkeypatch
) -> None:
    monkeypatch.setattr("anychip.engine.doctor_shapes.CALL_S", 2.0)
    words = ["--backend", "crooked", "--chip-option", f"{option}=rms_norm", "--check-ops"]
    words += ["--model-path", str(folder), "--check-timeout", limit]
    code, found = examined(capsys, *words)
    assert code == 1
    assert found["memory plan"]["verdict"] == "good"
    assert found["checked steps"]["verdict"] == "bad"
    assert text in found["checked steps"]["text"]
    assert f"{limit} s, see --check-timeout" in found["checked steps"]["text"]
    assert found["checked steps"]["step"] == (
        f"anychip conform --backend crooked --chip-option {option}=rms_norm --level operators"
    )


def test_looks_behind_a_gate_are_not_taken() -> None:
    def never():
        raise AssertionError("it was taken")

    bad = doctor.Look("first", lambda: [Finding("first", Verdict.BAD, "")], "", gate=True)
    found = list(doctor.examine([bad, doctor.Look("second", never, "")]))
    assert [f.text for f in found] == ["", "not looked at: 'first' is not sound"]
    open_gate = doctor.Look("first", lambda: [Finding("first", Verdict.BAD, "")], "")
    (_, second) = doctor.examine([open_gate, doctor.Look("second", never, "mend it")])
    assert (second.verdict, second.step) == (Verdict.BAD, "mend it")
