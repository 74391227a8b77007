"""Which instruction set a processor gets; kernels from the wheel or from a compiler."""

from __future__ import annotations

import logging
import platform
import shutil
from itertools import pairwise

import pytest
from cpu_calls import CpuCalls, normal, relative

from anychip.chips.cpu import build, build_isa
from anychip.chips.cpu.build_isa import compiler_flags, instruction_sets, isas_of
from anychip.contract.build import Verdict
from anychip.contract.compile import NoCompiler
from anychip.contract.errors import ChipError
from anychip.contract.prebuilt import platform_folder, write_manifest

HASWELL = "fpu sse2 avx avx2 fma f16c"
SKYLAKE = f"{HASWELL} avx512f avx512bw avx512dq avx512vl"
ZEN4 = f"{SKYLAKE} avx512_bf16 avx512_vnni"
SAPPHIRE = f"{ZEN4} amx_tile amx_bf16 amx_int8"


@pytest.mark.parametrize(
    ("machine", "flags", "lends", "best", "count"),
    [
        ("x86_64", SAPPHIRE, True, "amx", 5),
        ("x86_64", SAPPHIRE, False, "avx512bf16", 4),
        ("x86_64", ZEN4, False, "avx512bf16", 4),
        ("x86_64", SKYLAKE, False, "avx512", 3),
        ("x86_64", HASWELL, False, "avx2", 2),
        ("x86_64", "fpu sse2 avx avx2 f16c", False, "portable", 1),  # fma is masked out
        ("x86_64", "", False, "portable", 1),
        ("aarch64", "fp asimd", False, "neon", 2),
        ("aarch64", SAPPHIRE, True, "neon", 2),  # an emulator may show the host's flags
        ("riscv64", "", False, "portable", 1),
    ],
)
def test_a_processor_gets_its_best_instruction_set(monkeypatch, machine, flags, lends, best, count):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(build_isa, "processor_flags", lambda: frozenset(flags.split()))
    monkeypatch.setattr(build_isa, "system_lends_tiles", lambda: lends)
    found = instruction_sets()
    assert found[0] == best and len(found) == count and found[-1] == "portable"


def test_a_set_below_another_asks_for_no_more_of_the_processor():
    """Whoever has one has those behind it."""
    have = [set(build_isa.FEATURES[isa]) for isa in isas_of("x86_64")]
    assert all(more > less for more, less in pairwise(have))


def test_flags_are_those_of_the_machine_that_runs_it():
    assert "-mno-avx" in compiler_flags("portable", "x86_64")
    for isa in isas_of("aarch64"):
        assert not [f for f in compiler_flags(isa, "aarch64") if f.startswith("-m")]


@pytest.fixture
def wheel(cpu, tmp_path, monkeypatch):
    """An installation that carries one library: the one that was compiled for this processor."""
    isa = cpu.chip.capabilities().facts["isa"]
    folder = tmp_path / platform_folder()
    folder.mkdir()
    library = folder / f"anychip_cpu_{isa}.so"
    shutil.copy(cpu.chip.capabilities().facts["kernels"], library)
    made = {library: build.wheel_order(isa)}
    write_manifest(folder, made, compiler="g++ of the wheel", glibc=(2, 2))
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    return library


def facts_of(**options):
    calls = CpuCalls(options)
    try:
        return calls.chip.capabilities().facts, calls.chip.build.check(), computed(calls)
    finally:
        calls.chip.close()


def computed(calls):
    x, w = normal(1, 3, 64), normal(2, 5, 64)
    y = calls.call("linear", x=x, weight=calls.weight("float32", (5, 64), w))
    return relative(y, x @ w.T)


def test_a_wheels_kernels_need_no_compiler(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for kernels in ("auto", "native", "prebuilt"):
        facts, findings, error = facts_of(kernels=kernels, build_dir=tmp_path / "build")
        assert facts["kernels"] == str(wheel) and facts["built"] == "prebuilt by g++ of the wheel"
        assert {f.verdict for f in findings} == {Verdict.GOOD} and error < 1e-6
    assert not (tmp_path / "build").exists()
    with pytest.raises(NoCompiler):
        CpuCalls({"kernels": "compiled"})


def test_whoever_asks_for_compiled_kernels_gets_them(wheel):
    facts, findings, _ = facts_of(kernels="compiled")
    assert facts["kernels"] != str(wheel) and facts["built"] == "compiled here, as asked for"
    assert "C++ compiler" in {f.name for f in findings}


def test_a_set_that_is_not_carried_is_compiled_and_said(wheel):
    facts, findings, _ = facts_of(isa="portable")
    carried = wheel.stem
    assert facts["built"].endswith(f"carries no prebuilt anychip_cpu_portable, but {carried}")
    assert {f.verdict for f in findings} == {Verdict.GOOD}


def test_a_damaged_prebuilt_library_is_told_and_replaced(wheel, caplog):
    wheel.write_bytes(wheel.read_bytes()[:5000])
    with caplog.at_level(logging.WARNING, "anychip.chip"):
        facts, findings, error = facts_of()
    assert "does not use its prebuilt kernels" in caplog.text and "is damaged" in caplog.text
    assert facts["kernels"] != str(wheel) and "compiled here: " in facts["built"] and error < 1e-6
    (told,) = [f for f in findings if f.name == "prebuilt kernels"]
    assert told.verdict is Verdict.UNKNOWN and "install the wheel again" in told.step
    with pytest.raises(ChipError, match=r"is damaged.*leave kernels=prebuilt out"):
        CpuCalls({"kernels": "prebuilt"})


def test_a_checkout_carries_none(cpu):
    """Sources are edited here: what they are compiled to is never older than they."""
    assert not build.PREBUILT.exists()
    with pytest.raises(ChipError, match="carries no prebuilt kernels for this platform"):
        CpuCalls({"kernels": "prebuilt"})
    choice = build.KernelChoice("portable", 1, build.PREBUILT, "prebuilt")
    assert build.CpuBuild(choice).check()[-1].verdict is Verdict.BAD
