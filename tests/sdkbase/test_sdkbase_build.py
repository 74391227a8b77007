"""The build layer of a vendor with one library: what it tells, and the shim."""

from __future__ import annotations

import ctypes
import shutil
import stat
from pathlib import Path

import pytest
from small_device import folder

from anychip.contract.build import Verdict
from anychip.contract.compile import left_out
from anychip.contract.errors import ChipError, ContractError, ErrorKind
from anychip.sdkbase import machine
from anychip.sdkbase.build import BuildTerms, SdkBuild
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.sdk import found_sdk
from anychip.sdkbase.versions import told_by_file

FORM = SdkForm(
    "/nowhere", (), root_variable="DEV_ROOT", runtime_variable="DEV_RUNTIME", runtime="dev"
)
TABLES = {
    "libraries.tsv": "library	package	variable	role	symbols\n"
    "dev	DEVKIT	DEV_ROOT	called	dev_\ncl	CLKIT	DEV_ROOT	cards	cl_\n",
    "versions.tsv": "versions	verdict	source\nDEVKIT=1.*	bad	a report\n",
    "operators.tsv": "operator	assumed\nsilu	its sign\nadd	\n",
    "abi_dev.tsv": "name	evidence\ndev_use	guess\ndev_unused	guess\ndev_count	header\n",
}
CORE = """
#include "dev/dev.h"
extern "C" __attribute__((visibility("default"))) int cards() {
    int count = 0;
    return dev_count(&count) ? -1 : count + dev_use(0);
}
"""


class SmallBuild(SdkBuild):
    def _version_files(self):
        return {"DEVKIT": told_by_file([self.sdk.root] if self.sdk.root else [])}

    def _versions_called(self):
        return {}


@pytest.fixture
def sdk(tmp_path) -> Path:
    root = tmp_path / "an SDK"
    (root / "lib").mkdir(parents=True)
    shutil.copy(folder() / "lib" / "libdev.so", root / "lib")
    (root / "include" / "dev").mkdir(parents=True)
    header = 'extern "C" {\nint dev_count(int*);\nint dev_use(int);\nint dev_newest(int);\n}\n'
    (root / "include" / "dev" / "dev.h").write_text(header)
    (root / "version").write_text("version: 1.5\n")
    return root


@pytest.fixture
def kernels(tmp_path) -> Path:
    place = tmp_path / "chip" / "kernels"
    place.mkdir(parents=True)
    for name, text in (TABLES | {"core.cpp": CORE}).items():
        (place / name).write_text(text)
    return place


def layer(sdk: Path, kernels: Path, **given: str) -> SmallBuild:
    terms = BuildTerms(
        chip="small",
        kernels=kernels,
        form=FORM,
        package=lambda header: "DEVKIT",
        called=("dev_count",),
        install="install DEVKIT",
        way_out="take another",
    )
    options = {"sdk_root": str(sdk), "build_dir": str(kernels.parent / "built")} | given
    return SmallBuild(options, found_sdk(options, FORM, ["dev", "cl"]), terms)


def test_a_sound_sdk_is_told_part_by_part(sdk, kernels):
    found = {f.name: f for f in layer(sdk, kernels).check()}
    assert found["SDK"].text == f"sdk_root={sdk} (option or variable)"
    assert found["dev/dev.h"].verdict is found["libraries"].verdict is Verdict.GOOD
    assert found["libcl.so"].text.startswith("libcl.so (package CLKIT) is not there: one card")
    assert "1 rows: dev_use; of its semantics, 1 operators: silu" in found["assumed"].text
    assert layer(sdk, kernels).versions()["DEVKIT"] == "1.5"
    assert [r.verdict for r in layer(sdk, kernels).matrix()] == [Verdict.BAD]
    (sdk / "SIMULATED.txt").touch()
    assert all(f.text.endswith("[simulated SDK]") for f in layer(sdk, kernels).check())


def test_the_shim_is_built_against_it_and_a_guess_that_does_not_fit_is_left_out(sdk, kernels):
    (kernels / "guess_newest.cpp").write_text('#include "dev/dev.h"\nint n = dev_newest(1);\n')
    path = layer(sdk, kernels).compile()
    ctypes.CDLL(str(sdk / "lib" / "libdev.so"), mode=ctypes.RTLD_GLOBAL)
    assert ctypes.CDLL(path).cards() == 2
    assert "dev_newest" in left_out(Path(path))["guess_newest.cpp"]
    assert layer(sdk, kernels).compile() == path
    (sdk / "version").write_text("version: 1.6\n")
    assert layer(sdk, kernels).compile() != path


def test_a_second_file_of_a_library_is_told_when_the_chip_starts(sdk, kernels, tmp_path, caplog):
    more = tmp_path / "more"
    shutil.copytree(sdk / "lib", more)
    layer(sdk, kernels, library_dirs=str(more)).compile()
    (told,) = [line for line in caplog.messages if "libdev.so" in line]
    assert f"the search also leads to a copy, {sdk}/lib/libdev.so; keep one" in told
    assert "(package DEVKIT)" in told


def test_what_keeps_it_from_building_leads_to_the_library(sdk, kernels):
    (kernels / "core.cpp").write_text('#include "dev/dev.h"\nint n = dev_newest(1);\n')
    text = r"dev_newest.*libdev\.so \(package DEVKIT\) should have it.*take another"
    with pytest.raises(ChipError, match=text):
        layer(sdk, kernels).compile()


def test_a_guess_without_its_header_is_told_before_and_after(sdk, kernels):
    (kernels / "guess_newest.cpp").write_text('#include "newest.h"\n#include "dev/dev.h"\n')
    texts = {f.name: f for f in layer(sdk, kernels).check()}
    before = texts["newest.h"]
    assert before.verdict is Verdict.UNKNOWN and "will be left out" in before.text
    assert before.step == "install DEVKIT, or take another"
    without = layer(sdk, kernels).compile()
    (told,) = [f for f in layer(sdk, kernels).check() if "left out" in f.text]
    assert told.step == "for newest.h: take another; or go without guess_newest.cpp"
    (sdk / "include" / "newest.h").touch()
    assert layer(sdk, kernels).compile() != without
    assert all("left out" not in f.text for f in layer(sdk, kernels).check())


def test_a_named_place_that_does_not_hold_it_is_refused_whatever_else_is_there(sdk, kernels):
    empty = sdk.parent / "empty"
    empty.mkdir()
    wrong = layer(sdk, kernels, runtime_lib=str(empty))
    (found,) = wrong.check()
    assert (found.name, found.verdict) == ("libdev.so", Verdict.BAD)
    assert found.text == f"DEV_RUNTIME={empty} holds no libdev.so"
    assert wrong.environment() == {}
    with pytest.raises(ChipError, match=f"{found.text} .*set DEV_RUNTIME") as caught:
        wrong.compile()
    assert caught.value.fact.kind is ErrorKind.INVALID


def test_without_an_sdk_the_way_out_is_told(kernels):
    nothing = layer("", kernels)
    (found,) = nothing.check()
    assert found.verdict is Verdict.BAD and found.step == "install DEVKIT"
    assert nothing.environment() == {}
    with pytest.raises(ChipError, match="install DEVKIT"):
        nothing.compile()


def test_the_environment_leads_a_shell_to_it(sdk, kernels):
    assert layer(sdk, kernels).environment() == {
        "DEV_ROOT": str(sdk),
        "DEV_RUNTIME": f"{sdk}/lib",
        "LD_LIBRARY_PATH": f"{sdk}/lib",
    }


def test_the_environment_of_a_relative_place_fits_every_folder(sdk, kernels, monkeypatch):
    monkeypatch.chdir(sdk.parent)
    assert layer(sdk.name, kernels).environment() == layer(sdk, kernels).environment()


def test_a_symbol_leads_to_the_library_whose_word_comes_first(sdk, kernels):
    exporter = layer(sdk, kernels)._terms.exporter
    names = exporter("dev_count"), exporter("_Z7cl_sendP7dev_ctx"), exporter("printf")
    assert names == ("libdev.so", "libcl.so", "")


def test_the_bus_and_strange_tools_are_told(tmp_path, monkeypatch):
    tool = tmp_path / "dev-smi"
    tool.write_text("#!/bin/sh\necho Another Tool\n")
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (told,) = machine.strange_tools(["dev-smi", "gone-smi"], "DEVKIT")
    assert told == f"{tool} is another vendor's tool, or broken: Another Tool"
    assert machine.strange_tools(["dev-smi"], "Tool") == []
    (tmp_path / "bus" / "0").mkdir(parents=True)
    (tmp_path / "bus" / "0" / "vendor").write_text("0x1234\n")
    monkeypatch.setattr(machine, "PCI", tmp_path / "bus")
    assert machine.on_the_bus("0x1234") == "the PCI bus has 1 devices of vendor 0x1234"


def test_cards_are_those_that_are_visible():
    assert machine.visible_cards("small", " 2, 0", 3) == [2, 0]
    assert machine.card_of("small", "", 3, 1) == 1
    for text, device, why in (("3", 0, "no card '3'"), ("2", 1, "no device 1, 1 cards")):
        with pytest.raises(ContractError, match=f"chip 'small': .*{why}"):
            machine.card_of("small", text, 3, device)
