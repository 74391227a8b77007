"""XPUML through ctypes: against other processes, the vendor's tool, the ABI table, each code."""

import ctypes
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import kunlun_sim
import pytest
from kunlun_sim import MIB
from sim_trees import TABLES

from anychip.chips.kunlun.memory import ERRORS
from anychip.chips.kunlun.telemetry import LAYOUTS, KunlunTelemetry, XpuML
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.memory import MemoryInfo
from anychip.sdkbase.table import rows

ABI = rows(TABLES / "abi_telemetry.tsv")
CODES = {
    int(row["declaration"]): row["name"].removeprefix("XPUML_ERROR_")
    for row in ABI
    if row["name"].startswith("XPUML_ERROR_")
}
ROOT = Path(__file__).parents[3]

HOLD = """
import ctypes, os, sys
xpu = ctypes.CDLL("libxpurt.so")
address = ctypes.c_void_p()
assert xpu.xpu_set_device(1) == 0
assert xpu.xpu_malloc(ctypes.byref(address), ctypes.c_uint64(SIZE), KIND) == 0
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def xpuml(sdk):
    opened = XpuML(sdk.root / "runtime" / "lib" / "libxpuml.so")
    yield opened
    opened.close()


def held(sdk, size: int, kind: int) -> subprocess.Popen:
    child = sdk.start(HOLD.replace("SIZE", str(size)).replace("KIND", str(kind)))
    assert child.stdout.readline() == "held\n"
    return child


def test_memory_is_what_another_process_holds_on_that_card_alone(sdk, xpuml):
    before = [xpuml.memory(card) for card in range(3)]
    child = held(sdk, 64 * MIB, 0)
    during = [xpuml.memory(card) for card in range(3)]
    child.kill()
    child.communicate()
    total, free, used = before[1]
    assert during[1] == (total, free - 64 * MIB, used + 64 * MIB)
    assert (during[0], during[2]) == (before[0], before[2])
    assert total == 98304 * MIB
    assert xpuml.memory(1) == before[1], "what a dead process held is given back"


def test_cache_memory_is_not_device_memory(sdk, xpuml):
    before = xpuml.memory(1)
    child = held(sdk, 8 * MIB, 1)
    during = xpuml.memory(1)
    child.communicate("\n")
    assert during == before


def test_it_tells_what_the_vendors_tool_prints(sdk, xpuml):
    lines = [shlex.split(line) for line in sdk.smi("-m").splitlines()]
    assert len(lines) == xpuml.count() == 3
    for card, words in enumerate(lines):
        place = xpuml.pci(card)
        total, _, used = xpuml.memory(card)
        assert (place.bus_id.lower(), xpuml.serial(card)) == (words[0].lower(), words[3])
        assert (place.vendor, place.device) == (0x1D22, 0x3688)
        assert [used // MIB, total // MIB] == [int(word) for word in words[17:19]]
        assert abs(xpuml.temperature(card) - int(words[4])) <= 5
        assert abs(xpuml.power(card) - int(words[8])) <= 40, "watts"
        assert 0 <= xpuml.utilization(card) <= 1
    assert f"Driver Version: {xpuml.driver_version()} " in sdk.smi().replace("\t", " ")


def seen(reading: Callable[[], bool]) -> bool:
    """Whether it becomes true; a sample of the driver covers a part of a second."""
    for _ in range(200):
        if reading():
            return True
        time.sleep(0.1)
    return False


def test_a_busy_card_is_told_from_an_idle_one(sdk, kernels, xpuml):
    assert seen(lambda: xpuml.utilization(0) < 0.2)
    body = """
import select
while not select.select([sys.stdin], [], [], 0)[0]:
    parts.sleep(200)
    parts.stream.wait(None)
"""
    child = kunlun_sim.start(sdk, kernels, body)
    busy = seen(lambda: xpuml.utilization(0) > 0.5 and xpuml.power(0) > xpuml.power(1) + 50)
    child.communicate("\n")
    assert (busy, child.returncode) == (True, 0)
    assert seen(lambda: xpuml.utilization(0) < 0.2)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "xpumlDeviceGetMemoryInfo",
            ["xpumlMemory_t." + n + "GlobalMemory" for n in ("total", "free", "used")],
        ),
        ("xpumlDeviceGetUtilizationRates", ["xpumlUtilization_t.xpu"]),
        ("xpumlDeviceGetPciInfo", ["xpumlPciInfo_t.pciDeviceId", "xpumlPciInfo_t.busId"]),
    ],
)
def test_layouts_read_the_fields_that_the_abi_table_has(name, wanted):
    offsets = {
        row["name"]: int(row["declaration"].split()[1]) for row in ABI if row["kind"] == "field"
    }
    content = bytearray(128)
    marks = []
    for number, field in enumerate(wanted, 1):
        content[offsets[field]] = number
        marks.append(number)
    read = struct.unpack_from(LAYOUTS[name], content)
    assert [v[0] if isinstance(v, bytes) else v for v in read] == marks
    assert {int(r["declaration"]) for r in ABI if r["kind"] == "struct"} == {128}


@pytest.fixture(scope="module")
def stub(tmp_path_factory) -> Path:
    """A libxpuml whose every function returns what is in `status`, but the first one 0."""
    place = tmp_path_factory.mktemp("stub")
    names = [row["name"] for row in ABI if row["kind"] == "function" and row["name"] != "xpumlInit"]
    code = "int status;\nint xpumlInit() { return 0; }\n"
    code += "".join(f"int {name}() {{ return status; }}\n" for name in names)
    (place / "stub.c").write_text(code)
    command = ["gcc", "-shared", "-fPIC", str(place / "stub.c"), "-o", str(place / "stub.so")]
    subprocess.run(command, check=True)
    return place / "stub.so"


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_is_named_as_the_header_names_it(stub, code):
    opened = XpuML(stub)
    ctypes.c_int.in_dll(ctypes.CDLL(str(stub)), "status").value = code
    with pytest.raises(ChipError) as caught:
        opened.memory(0)
    assert f"XPUML {code} ({CODES[code]})" in str(caught.value)
    assert caught.value.code == 30_000 + code


def test_a_missing_driver_a_missing_function_and_a_missing_library(sdk, tmp_path):
    code = f"""
from anychip.chips.kunlun.telemetry import XpuML
from anychip.contract.errors import ChipError
for name in ("runtime/lib/libxpuml.so", "runtime/lib/libxpurt.so", "nothing.so"):
    try:
        XpuML({str(sdk.root)!r} + "/" + name)
    except ChipError as error:
        print(error)
"""
    told = sdk.run(code, XPUSIM_STATE=str(tmp_path)).splitlines()
    assert "device lost: xpumlInit: XPUML 9 (DRIVER_NOT_LOADED)" in told[0]
    assert "version mismatch" in told[1]
    assert "undefined symbol: xpumlInit" in told[1]
    assert "version mismatch" in told[2]
    assert "nothing.so" in told[2]


class Told:
    """An XPUML whose power reading fails with some status."""

    def __init__(self, status: int) -> None:
        self.status = status

    def memory(self, index: int) -> tuple[int, int, int]:
        return 100, 70, 30

    def utilization(self, index: int) -> float:
        return 0.5

    def temperature(self, index: int) -> float:
        return 40.0

    def power(self, index: int) -> float:
        raise ERRORS.error("XPUML", self.status, "xpumlDeviceGetPowerUsage")


def info() -> MemoryInfo:
    return MemoryInfo(100, 20, 80, 60, "memory layer")


@pytest.mark.parametrize("status", [3, 21])
def test_what_the_device_does_not_support_is_left_out(status):
    reading = KunlunTelemetry(Told(status), 0, info).read()
    assert (reading.utilization, reading.temperature, reading.power) == (0.5, 40.0, None)
    assert reading.memory == info()


def test_every_other_status_is_an_error():
    with pytest.raises(ChipError) as caught:
        KunlunTelemetry(Told(15), 0, info).read()
    assert caught.value.fact.kind is ErrorKind.LOST


def test_the_page_of_metrics_says_what_the_chip_tells(chip):
    sys.path.append(str(ROOT / "bench"))
    import chip_figures

    row = chip_figures.line(chip_figures.told(chip, "`kunlun`"))
    assert row in (ROOT / "docs" / "metrics.md").read_text().splitlines()
