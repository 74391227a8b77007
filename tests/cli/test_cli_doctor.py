"""`anychip doctor`: green, yellow and red lines, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crooked_chip
import tiny_models
from anychip.__main__ import main
from anychip.chips.fake.memory import FakeMemory
from anychip.contract.build import Compatibility, Finding, Verdict
from anychip.contract.registration import Probe
from anychip.ops.saved import load
from anychip.run import doctor

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
    assert "model" not in found


def test_table_shows_colours_and_next_steps(capsys) -> None:
    assert main(["doctor", "--backend", "nope"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (red,) = [line for line in lines if "red" in line]
    assert "no chip 'nope' is installed" in red
    assert "see `anychip chips`" in red
    (memory,) = [line for line in lines if "memory" in line]
    assert "yellow" in memory
    assert "not looked at" in memory


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


def test_whatever_a_chip_raises_is_a_line(capsys, monkeypatch, folder) -> None:
    def explode(cls, device, timeout):
        raise OSError("the bus is gone")

    monkeypatch.setattr(crooked_chip.CrookedChip, "check_device", classmethod(explode))
    code, found = examined(capsys, "--backend", "crooked", "--model-path", str(folder))
    assert code == 1
    assert found["device"]["text"] == "OSError: the bus is gone"
    assert found["device"]["step"]
    assert found["model"]["text"] == "not looked at: 'device' is not sound"


def test_wrong_option_is_told_at_the_opening(capsys) -> None:
    code, found = examined(capsys, "--backend", "fake", "--chip-option", "memory=much")
    assert code == 1
    assert "say a number of bytes" in found["open"]["text"]


def test_bytes_that_change_on_the_way_are_red(capsys, monkeypatch) -> None:
    sound = FakeMemory.copy_out

    def changed(self, source, target):
        sound(self, source, target)
        target.cast("B")[0] ^= 1

    monkeypatch.setattr(FakeMemory, "copy_out", changed)
    code, found = examined(capsys, "--backend", "crooked")
    assert code == 1
    assert found["copies"]["text"] == "1 of 1048576 bytes came back changed"


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
    from anychip.chips.fake.build import FakeBuild

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


def test_looks_behind_a_gate_are_not_taken() -> None:
    def never():
        raise AssertionError("it was taken")

    bad = doctor.Look("first", lambda: [Finding("first", Verdict.BAD, "")], "", gate=True)
    found = list(doctor.examine([bad, doctor.Look("second", never, "")]))
    assert [f.text for f in found] == ["", "not looked at: 'first' is not sound"]
    open_gate = doctor.Look("first", lambda: [Finding("first", Verdict.BAD, "")], "")
    (_, second) = doctor.examine([open_gate, doctor.Look("second", never, "mend it")])
    assert (second.verdict, second.step) == (Verdict.BAD, "mend it")
