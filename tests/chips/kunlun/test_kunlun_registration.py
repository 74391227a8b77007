"""Which cards are there, why there are none, and what an opened one says of itself.

Boards are patched, not built anew: a probe and a check of a device run in child processes, which
read the board that a variable names.
"""

import os
import shutil
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kunlun_sim
import numpy as np
import pytest
from kunlun_sim import PAGE
from kunlun_small import linked_tree
from sim_trees import SimTree

from anychip.chips.kunlun import registration
from anychip.chips.kunlun.build import KunlunBuild
from anychip.chips.kunlun.memory import ERRORS
from anychip.chips.kunlun.registration import KunlunChip
from anychip.contract.build import Verdict
from anychip.contract.cache import HND
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ContractError, ErrorKind
from anychip.contract.registration import read_options
from anychip.contract.tensor import Tensor
from anychip.sdkbase import machine

DRIVER_AT, DEVICES_AT = 32, 64
"""Where board.h has the driver's version (four numbers) and the count of cards."""


@pytest.fixture
def board(sdk: SimTree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Gives children a board of their own, with numbers at some places changed."""

    def patched(at: int, *numbers: int) -> Path:
        place = tmp_path / "state"
        place.mkdir()
        content = bytearray((sdk.root / "state" / "board").read_bytes())
        struct.pack_into(f"<{len(numbers)}I", content, at, *numbers)
        (place / "board").write_bytes(content)
        monkeypatch.setenv("XPUSIM_STATE", str(place))
        return place

    return patched


def test_a_probe_tells_each_card(options):
    probe = KunlunChip.probe(options)
    assert [d.index for d in probe.devices] == [0, 1, 2] and probe.reason == ""
    assert [d.name for d in probe.devices] == [f"P800, card {n} (simulated)" for n in range(3)]
    assert {d.memory for d in probe.devices} == {96 << 30}
    assert len({d.uid for d in probe.devices}) == 3
    assert probe.devices[0].uid.startswith("00000000:")
    assert probe.versions["driver"] == "5.0.21.21" and probe.versions["runtime"].startswith("5.")


def test_a_probe_loads_nothing_here_and_touches_no_card(sdk, options):
    """Judged in a process that does nothing else."""
    body = f"""
probe = KunlunChip.probe({options!r})
print(len(probe.devices), "libxpu" in open("/proc/self/maps").read())
"""
    assert run_chip(sdk, body) == "3 False\n"


def test_visible_cards_are_ranks_in_that_order(options):
    probe = KunlunChip.probe(options | {"visible": " 2, 0"})
    assert [(d.index, d.name.split(",")[1]) for d in probe.devices] == [
        (0, " card 2 (simulated)"),
        (1, " card 0 (simulated)"),
    ]
    twice = KunlunChip.probe(options | {"visible": "1,1"}).devices
    assert len(twice) == 2 and twice[0].uid == twice[1].uid


@pytest.mark.parametrize("visible", ["3", "0,x", "-1", "0,1,7"])
def test_a_card_that_is_not_there_is_named(options, visible):
    probe = KunlunChip.probe(options | {"visible": visible})
    assert not probe.devices
    wrong = next(w for w in visible.split(",") if w not in "012")
    assert f"visible={visible}: there is no card '{wrong}', there are 3" in probe.reason


def test_the_vendors_variables_give_options():
    given = {"XPU_VISIBLE_DEVICES": "1", "KUNLUN_SDK_ROOT": "/a", "KUNLUN_RUNTIME_LIB": "/b"}
    values = read_options(KunlunChip, {}, given)
    assert (values["visible"], values["sdk_root"], values["runtime_lib"]) == ("1", "/a", "/b")


def test_no_library(options, sdk, tmp_path):
    linked_tree(sdk.root / "sdk", tmp_path / "sdk")
    nothing = options | {"sdk_root": str(tmp_path / "sdk"), "runtime_lib": ""}
    probe = KunlunChip.probe(nothing)
    assert not probe.devices
    for word in ("no libxpurt.so and libxpuml.so", str(tmp_path), "KUNLUN_RUNTIME_LIB", "0x1d22"):
        assert word in probe.reason
    with pytest.raises(ChipError, match=r"no libxpurt\.so"):
        KunlunChip.open(0, nothing)


def test_a_variable_that_leads_nowhere_is_refused_with_the_same_words(options, tmp_path):
    """The runtime lies beside the SDK; that was not asked for."""
    given = options | {"runtime_lib": str(tmp_path)}
    words = f"KUNLUN_RUNTIME_LIB={tmp_path} holds no libxpurt.so"
    assert KunlunChip.toolchain(given).check()[0].text == words
    probe = KunlunChip.probe(given)
    assert not probe.devices and words in probe.reason
    with pytest.raises(ChipError, match=words):
        KunlunChip.open(0, given)


def test_what_the_sdk_lacks_for_the_shim_is_no_fault_of_the_card(options, sdk, tmp_path):
    linked_tree(sdk.root, tmp_path / "tree")
    for header in (tmp_path / "tree").rglob("xdnn.h"):
        header.unlink()
    given = kunlun_sim.options_for(tmp_path / "tree", build_dir=str(tmp_path))
    told = KunlunChip.check_device(0, 120.0, given)
    assert told.verdict is Verdict.BAD and "xpu/xdnn.h: No such file" in told.text
    assert told.step == "anychip build kunlun"


def test_libraries_without_a_driver(options, monkeypatch, tmp_path):
    monkeypatch.setenv("XPUSIM_STATE", str(tmp_path))
    probe = KunlunChip.probe(options)
    assert not probe.devices
    assert "no driver: xpumlInit: XPUML 9 (DRIVER_NOT_LOADED)" in probe.reason


def test_a_driver_without_a_card(options, board):
    board(DEVICES_AT, 0)
    probe = KunlunChip.probe(options)
    assert not probe.devices
    assert "libraries and driver are there, a card is not" in probe.reason
    assert probe.versions["driver"] == "5.0.21.21"


@pytest.mark.parametrize("driver", [(4, 33, 0, 0), (5, 0, 9, 1)])
def test_a_driver_of_another_version(options, board, driver):
    board(DRIVER_AT, *driver)
    probe = KunlunChip.probe(options)
    assert not probe.devices
    assert "xpu_device_count: XRE 704 (VERSION)" in probe.reason
    assert f"driver {'.'.join(map(str, driver))}, runtime 5." in probe.reason


def test_another_vendors_tool_is_not_believed(options, monkeypatch, tmp_path):
    tool = tmp_path / "xpu-smi"
    tool.write_text("#!/bin/sh\necho 'Intel XPU System Management Interface'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    bus = tmp_path / "bus" / "0000:01:00.0"
    bus.mkdir(parents=True)
    (bus / "vendor").write_text("0x8086\n")
    monkeypatch.setattr(machine, "PCI", bus.parent)
    nothing = options | {"sdk_root": str(tmp_path), "runtime_lib": str(tmp_path)}
    reason = KunlunChip.probe(nothing).reason
    assert "the PCI bus has 0 devices of vendor 0x1d22" in reason
    assert f"{tool} is another vendor's tool, or broken: Intel XPU System" in reason
    (bus / "vendor").write_text("0x1d22\n")
    assert "the PCI bus has 1 devices of vendor 0x1d22" in KunlunChip.probe(nothing).reason


def test_a_library_that_ends_the_process_ends_the_probe_alone(sdk, options, tmp_path):
    folder = tmp_path / "lib"
    shutil.copytree(sdk.root / "runtime" / "lib", folder, symlinks=True)
    source = tmp_path / "bad.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) void f() { abort(); }\n")
    for name in ("libxpuml.so", "libxpuml.so.1"):
        (folder / name).unlink()
    command = ["gcc", "-shared", "-fPIC", str(source), "-o", str(folder / "libxpuml.so")]
    subprocess.run(command, check=True)
    probe = KunlunChip.probe(options | {"runtime_lib": str(folder)})
    assert not probe.devices and "killed by SIGABRT" in probe.reason


@pytest.mark.usefixtures("compiled")
def test_a_healthy_card_adds_and_a_sick_one_is_found(options, monkeypatch):
    good = KunlunChip.check_device(0, 60.0, options)
    assert good.verdict is Verdict.GOOD and "ones were added" in good.text
    monkeypatch.setenv("XPUSIM_FAULTS", "sick=1")
    assert KunlunChip.check_device(0, 60.0, options).verdict is Verdict.GOOD
    sick = KunlunChip.check_device(1, 4.0, options)
    assert sick.verdict is Verdict.BAD and "no answer within 4 s" in sick.text and sick.step
    assert len(KunlunChip.probe(options).devices) == 3  # its telemetry is healthy


@pytest.mark.usefixtures("compiled")
def test_a_card_that_is_lost_is_found_and_hides_no_other(sdk, kernels, options, monkeypatch):
    body = "parts.launch_fill(parts.bytes(9), 1)\nprint('lost', flush=True)\nsys.stdin.read()"
    child = kunlun_sim.start(sdk, kernels, body, faults="lost@1")
    assert child.stdout.readline() == "lost\n"
    first, second, _ = KunlunChip.probe(options).devices
    child.kill()
    child.wait()
    assert "no answer" in first.name and "XPU_IS_LOST" in first.name
    assert second.name == "P800, card 1 (simulated)"
    monkeypatch.setenv("XPUSIM_FAULTS", "lost@1")
    lost = KunlunChip.check_device(0, 60.0, options)
    assert lost.verdict is Verdict.BAD and "add" in lost.text


def test_what_an_opened_card_says_of_itself(chip, options):
    said = chip.capabilities()
    assert said == chip.capabilities()
    assert said.cache_layout == HND and said.max_rows == 1023
    assert set(said.activation_dtypes) == {DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32}
    assert "SIMULATED" in said.facts["SDK"] and options["sdk_root"] in said.facts["SDK"]
    assert said.facts["versions"].startswith("driver 5.0.21.21, runtime 5.")
    assert chip.telemetry.read().memory.total == chip.memory.info().total == 96 << 30
    assert isinstance(KunlunChip.toolchain(options), KunlunBuild)
    assert KunlunChip.map_error(-714).kind is ErrorKind.KERNEL


@pytest.mark.parametrize("device", [-1, 3])
def test_a_device_that_is_not_there_is_refused(options, device):
    with pytest.raises(ContractError, match=f"no device {device}, 3 cards are visible"):
        KunlunChip.open(device, options)


def test_open_and_close_leave_nothing_behind(sdk, options):
    """Threads end a moment after their queue, so they are looked for with patience."""

    def once() -> None:
        chip = KunlunChip.open(0, options)
        tensor = Tensor((64,), DType.UINT8, buffer=chip.memory.allocate(5 << 20))
        chip.memory.copy_in(tensor, np.zeros(64, np.uint8).data)
        chip.memory.copy(tensor.view((8,)), tensor.view((8,), offset=8))
        chip.close()
        chip.close()

    once()
    before = threads_and_files()
    for _ in range(10):
        once()
    for _ in range(200):
        if threads_and_files() <= before:
            break
        subprocess.run(["sleep", "0.01"], check=True)
    assert threads_and_files() <= before
    assert int(sdk.smi("-m").splitlines()[0].split()[17]) == 0


def threads_and_files() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def test_two_opened_cards_keep_apart(sdk, options):
    first, second = (KunlunChip.open(device, options) for device in (0, 1))
    held = first.memory.allocate(100), second.memory.allocate(5 << 20)
    assert first.memory.info().used == PAGE and second.memory.info().used == 5 << 20
    for chip, other in ((first, held[1]), (second, held[0])):
        with pytest.raises(ChipError, match="another chip's"):
            chip.memory.free(other)
    for chip in (first, second):  # each leaves something queued, and the second card current
        tensor = Tensor((64,), DType.UINT8, buffer=chip.memory.allocate(64))
        chip.memory.copy(tensor.view((8,)), tensor.view((8,), offset=8))
    first.close()
    assert second.memory.info().used >= 5 << 20
    second.close()
    for chip in (first, second):
        with pytest.raises(ChipError, match="closed"):
            chip.queue.synchronize(5.0)
    assert not any(int(line.split()[17]) for line in sdk.smi("-m").splitlines()[:2])


COUNTED_ANEW = """
chip = KunlunChip.open(0, options)
buffer = chip.memory.allocate(3 << 20)
print(chip.capabilities().facts["card"], chip.memory.info().used)
chip.close()
"""


@pytest.mark.parametrize(
    ("variable", "visible", "card"),
    [
        ("", "2,0", "2, number 2 of the runtime"),
        ("2,0", "2,0", "2, number 0 of the runtime"),
        ("0,1", "1", "1, number 1 of the runtime"),
    ],
)
def test_a_card_is_found_however_the_runtime_counts(sdk, options, variable, visible, card):
    """XPUML counts all cards, the runtime those that the variable leaves."""
    given = options | {"visible": visible}
    variables = {"XPU_VISIBLE_DEVICES": variable} if variable else {}
    out = run_chip(sdk, f"options = {given!r}\n{COUNTED_ANEW}", **variables)
    assert out == f"{card} {3 << 20}\n"


def test_a_card_that_the_runtime_hides_is_named(sdk, options):
    body = f"""
from anychip.contract.errors import ContractError
try:
    KunlunChip.open(0, {options | {"visible": "2"}!r})
except ContractError as error:
    print(error)
"""
    out = run_chip(sdk, body, XPU_VISIBLE_DEVICES="0,1")
    assert "the runtime shows 2 cards, none at 00000000:" in out and "XPU_VISIBLE_DEVICES" in out


def test_a_card_that_does_not_answer_keeps_no_other_from_being_opened(options, monkeypatch):
    """The runtime may count anew, so the ones that are likely are asked first: here number 0."""

    def dumb(xre, attribute, number):
        if number == 0:
            raise ERRORS.error("XRE", 802, "xpu_device_get_attr")
        return ask(xre, attribute, number)

    ask = registration._attribute
    monkeypatch.setattr(registration, "_attribute", dumb)
    chip = KunlunChip.open(0, options | {"visible": "1"})
    assert chip.capabilities().facts["card"] == "1, number 1 of the runtime"
    chip.close()
    with pytest.raises(ContractError, match=r"its number 0 does not answer: .*XRE 802"):
        KunlunChip.open(0, options)


def run_chip(sdk: SimTree, body: str, **variables: str) -> str:
    """A child without LD_LIBRARY_PATH, as a user's shell has it."""
    head = "from anychip.chips.kunlun.registration import KunlunChip\n"
    return sdk.run(head + body, **({"LD_LIBRARY_PATH": ""} | variables))


def test_every_option_has_a_word_of_help() -> None:
    seen: dict[str, Any] = {o.name: o for o in KunlunChip.options}
    assert all(o.help and o.type is str and o.default == "" for o in seen.values())
