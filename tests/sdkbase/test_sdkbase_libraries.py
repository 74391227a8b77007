"""Tables of errors, declared functions, NVML's form."""

from __future__ import annotations

import ctypes
import errno
import subprocess

import pytest
from small_device import CALLS, errors, folder

from anychip.contract.errors import ChipError, ChipLayer, ErrorKind
from anychip.sdkbase.library import Interface, VendorLibrary, declared, load_in_order
from anychip.sdkbase.management import ManagementForm, ManagementLibrary
from anychip.sdkbase.telemetry import CardTelemetry


def compiled(place, code, name="libx.so"):
    source = place / f"{name}.cpp"
    source.write_text(code)
    command = ["g++", "-shared", "-fPIC", str(source), "-o", str(place / name)]
    subprocess.run(command, check=True)
    return place / name


def test_codes_of_two_libraries_keep_apart():
    table = errors()
    assert table.fact(-3).layer is ChipLayer.MEMORY
    assert table.fact(10_003).layer is ChipLayer.OPERATORS
    error = table.error("OPS", -3, "add", ("mul",))
    assert (error.code, error.fatal) == (10_003, False)
    assert str(error).startswith("small, operators: invalid argument: add: OPS 3 (BAD): an operand")
    assert str(error).endswith("queued since the last wait: mul")


def test_what_the_table_lacks_keeps_its_number_and_is_fatal():
    table = errors()
    for code, text in ((77, "DEV 77"), (10_088, "OPS 88"), (50_001, "no library 1")):
        assert f"{text}: unknown code -{code}" in table.fact(-code).text
        assert table.fact(code).fatal
    assert "an errno: Operation not permitted" in table.fact(10_001).text
    assert "unknown code" in table.fact(errno.ENOMEM).text  # DEV has no errno
    with pytest.raises(ValueError, match="is not in"):
        table.code("XYZ", 1)


def test_functions_are_declared_and_optional_ones_may_be_missing():
    library = VendorLibrary(folder() / "lib" / "libdev.so", CALLS, errors())
    assert library.missing == ["dev_newer"] and "dev_newer" not in CALLS.required
    assert library.ask("dev_count", ctypes.c_int) == 2
    with pytest.raises(ctypes.ArgumentError):
        library.status("dev_use", "one")
    with pytest.raises(ChipError, match="dev_close: DEV 3"):
        library.call("dev_close", None)


def test_a_library_that_does_not_fit_is_named(tmp_path):
    path = compiled(tmp_path, 'extern "C" int there() { return 0; }')
    for where, calls, text in (
        (path, "there: gone:p", "undefined symbol: gone"),
        (tmp_path / "libno.so", "there:", "libno.so"),
    ):
        with pytest.raises(ChipError, match=f"build: version mismatch: .*{text}") as caught:
            VendorLibrary(where, Interface("DEV", declared(calls)), errors())
        assert caught.value.fatal
    with pytest.raises(ChipError, match=r"version mismatch.*libno\.so"):
        load_in_order([path, tmp_path / "libno.so"], errors())


def test_a_function_goes_by_its_other_name_where_it_has_one(tmp_path):
    path = compiled(tmp_path, "int mangled(int x) { return x; }")
    calls = Interface("DEV", declared("mangled:i"), symbols={"mangled": "_Z7mangledi"})
    assert VendorLibrary(path, calls, errors()).status("mangled", 5) == 5


MANAGED = """
#include <cstring>
static int started; static unsigned cards = 2; int status = 0;
extern "C" {
int smInit() { ++started; return 0; }
int smShutdown() { return started-- ? 0 : 3; }
int smSystemGetDriverVersion(char* t, unsigned n) { strcpy(t, "1.2"); return n < 8 ? 3 : 0; }
int smDeviceGetCount(unsigned* n) { *n = cards; return status; }
int smDeviceGetHandleByIndex(unsigned i, void** h)
    { *h = (void*)(i + 1L); return i < cards ? 0 : 3; }
int smDeviceGetSerial(void* h, char* t, unsigned)
    { strcpy(t, h == (void*)1 ? "A" : "B"); return 0; }
int smDeviceGetPciInfo(void*, void*) { return 0; }
int smDeviceGetMemoryInfo(void* h, unsigned long* m)
    { m[0] = 100; m[1] = 60; m[2] = 40 * (long)h; return 0; }
int smDeviceGetUtilizationRates(void*, unsigned* u) { *u = 25; return 0; }
int smDeviceGetTemperature(void*, int s, unsigned* t) { *t = 40 + s; return 0; }
int smDeviceGetPowerUsage(void*, unsigned* p) { *p = 1500; return status; }
}
"""
LAYOUTS = {"smDeviceGetMemoryInfo": "3Q"} | {
    f"smDeviceGet{n}": "I" for n in ("UtilizationRates", "Temperature", "PowerUsage")
}
TEXTS = {"smDeviceGetSerial": 30, "smSystemGetDriverVersion": 80}


def test_a_management_library_in_nvmls_form(tmp_path):
    path = compiled(tmp_path, MANAGED)
    form = ManagementForm("DEV", "sm", LAYOUTS, TEXTS, struct_bytes=64, sensor=2)
    library = ManagementLibrary(path, form, errors())
    assert (library.count(), library.driver_version()) == (2, "1.2")
    assert library.memory(1) == (100, 60, 80) and library.serial(1) == "B"
    card = CardTelemetry(library, 0, lambda: "as memory says", untold=(3,))
    reading = card.read()
    assert reading.memory == "as memory says"
    assert (reading.utilization, reading.temperature, reading.power) == (0.25, 42.0, 1.5)
    status = ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "status")
    status.value = 3
    assert card.read().power is None
    status.value = 9
    with pytest.raises(ChipError, match="smDeviceGetPowerUsage: DEV 9") as caught:
        card.read()
    assert caught.value.fact.kind is ErrorKind.KERNEL
    with pytest.raises(ChipError, match="smDeviceGetHandleByIndex: DEV 3"):
        library.memory(5)
    status.value = 0
    library.close()
