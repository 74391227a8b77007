"""Opening: options, instruction sets, no compiler, the child that tries the device."""

from __future__ import annotations

import logging
import platform
from pathlib import Path

import numpy as np
import pytest
from cpu_calls import CpuCalls, normal, relative

from anychip.chips.cpu import build, build_isa
from anychip.chips.cpu.build import STATUS, KernelChoice
from anychip.chips.cpu.build_isa import instruction_sets
from anychip.chips.cpu.registration import CpuChip
from anychip.chips.cpu.registration_cores import usable_cores
from anychip.contract.build import Verdict
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.compile import NoCompiler
from anychip.contract.errors import ChipError, ContractError
from anychip.contract.operators import CallSpec
from anychip.contract.registration import read_options
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import HostWeight, WeightUse


def test_wrong_options_are_refused():
    for options, text in (
        ({"kernels": "host", "isa": "portable"}, "isa=portable: kernels=host is numpy"),
        ({"kernels": "gpu"}, "kernels=gpu: say one of auto, native, prebuilt, compiled, host"),
        ({"isa": "sse9"}, "isa=sse9: say one of"),
        ({"threads": -1}, "threads=-1: say 0 to 1024"),
        ({"memory": "8Q"}, "memory=8Q: say a number of bytes"),
        ({"speed": 1}, "no option 'speed'"),
    ):
        with pytest.raises(ContractError, match=text):
            CpuCalls(options)


def test_an_instruction_set_that_is_not_there_is_refused(monkeypatch):
    have = frozenset({"avx2", "fma", "f16c"})
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build_isa, "processor_flags", lambda: have)
    assert instruction_sets() == ("avx2", "portable")
    with pytest.raises(ContractError, match="isa=avx512: this processor runs avx2, portable"):
        CpuCalls({"isa": "avx512"})


def test_facts_and_ids_name_the_instruction_set(each):
    facts = each.chip.capabilities().facts
    here = usable_cores()
    assert facts["threads"] == str(here.count) and facts["cores"] == f"{here.count} ({here.source})"
    assert facts["kernels"].endswith(".so") and facts["built"].startswith("compiled here: ")
    assert each.chip.operators.of("linear")[0].id == f"{facts['isa']}.linear"


def test_every_operator_has_an_implementation(cpu):
    assert {i.op for i in cpu.chip.operators.implementations} == set(CATALOGUE)


@pytest.fixture
def without_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_a_compiler_numpy_serves_and_says_so(without_compiler, caplog):
    with caplog.at_level(logging.WARNING, "anychip.chip"):
        calls = CpuCalls({})
    assert "many times slower" in caplog.text and "no C++ compiler" in caplog.text
    assert "no C++ compiler" in calls.chip.capabilities().facts["kernels"]
    assert calls.chip.capabilities().weight_formats == ("float32", "float16", "bfloat16")
    assert calls.chip.build.check()[-1].verdict is Verdict.BAD
    x, w = normal(1, 3, 64), normal(2, 5, 64, dtype=np.float16)
    y = calls.call("linear", x=x, weight=calls.weight("float16", (5, 64), w))
    assert calls.last_id == "hostops.linear"
    assert relative(y, x.astype(np.float64) @ w.astype(np.float64).T) < 1e-6
    calls.chip.close()


def test_without_a_compiler_native_is_refused(without_compiler):
    with pytest.raises(NoCompiler, match="looked for g\\+\\+"):
        CpuCalls({"kernels": "native"})


def test_a_compiler_that_fails_names_what_works_without_it(monkeypatch, tmp_path):
    broken = tmp_path / "g++"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo g++ 1 && exit 0\nexit 3\n')
    broken.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = "ended with status 3.*--chip-option kernels=host .*--chip-option isa="
    with pytest.raises(ChipError, match=told):
        CpuCalls({"kernels": "auto", "build_dir": tmp_path / "build"})


def test_a_damaged_library_is_a_finding_and_built_again(monkeypatch, tmp_path):
    monkeypatch.setattr(build_isa, "FLAGS", (*build_isa.FLAGS, "-O0"))  # soon compiled
    choice = KernelChoice("portable", 1, tmp_path / "build")
    fresh = build.CpuBuild(choice)
    path = Path(fresh.compile())
    assert fresh.check()[-1].verdict is Verdict.GOOD
    path.write_bytes(path.read_bytes()[:2000])
    assert fresh.check()[-1].verdict is Verdict.UNKNOWN
    build.load_kernels(choice).close()
    assert fresh.check()[-1].verdict is Verdict.GOOD


def test_without_a_home_the_build_folder_must_be_named(monkeypatch, tmp_path):
    def nobody(user):
        raise KeyError(user)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(ContractError, match=r"home folder is not known.*with --build-dir"):
        CpuCalls({"kernels": "host"})
    CpuCalls({"kernels": "host", "build_dir": tmp_path}).chip.close()


def largest_scratch(calls, op, inputs):
    """Workspace of the call, for 1 to 600 tokens."""
    specs, impl = {n: x.spec for n, x in inputs.items()}, calls.chip.operators.of(op)[0]
    grown = ("x", "q", "positions", "token_rows")
    found = []
    for tokens in range(1, 601):
        sized = {
            n: TensorSpec((tokens, *s.shape[1:]), s.dtype) if n in grown else s
            for n, s in specs.items()
        }
        y = sized["q"] if "q" in sized else sized["x"]
        found.append(impl.workspace(CallSpec(op, sized, {"y": y}, {})))
    return found


def test_workspaces_never_shrink_when_rows_grow(each):
    """The arena is planned for the largest step alone."""
    weight = each.weight("float32", (32, 96), normal(1, 32, 96))
    linear = largest_scratch(each, "linear", {"x": each.put(normal(2, 1, 96)), "weight": weight})
    pages = np.zeros((1, 200, 1, 16), np.float32)
    for width in (2, 70):
        inputs = {
            "q": each.put(normal(3, 1, 4, 16)),
            "cache": each.cache(pages[:, :16], pages[:, :16]),
            "page_table": each.put(np.zeros((3, width), np.int32)),
        }
        attention = largest_scratch(each, "paged_attention", inputs)
        assert attention == sorted(attention), width
    assert linear == sorted(linear) and linear[0] < linear[-1]


def test_host_kernels_hold_dense_float32(caplog):
    calls = CpuCalls({"kernels": "host"})
    assert "kernels=host" in caplog.text
    data = normal(1, 4, 8, dtype=np.float16)
    part = HostWeight("float16", (4, 8), memoryview(data.view(np.uint8)))
    weight = calls.chip.weights.prepare((part, part), frozenset({WeightUse.LINEAR}))
    assert weight.spec.dense and weight.spec.format == "float32"
    wanted = np.concatenate([data, data]).astype(np.float32)
    assert np.array_equal(calls.get(weight.dense), wanted)


def test_a_lookup_weight_is_declined_by_linear(cpu):
    part = HostWeight("float32", (4, 8), memoryview(normal(1, 4, 8).view(np.uint8)))
    weight = cpu.chip.weights.prepare((part,), frozenset({WeightUse.EMBEDDING}))
    x = cpu.put(normal(2, 1, 8))
    spec = CallSpec("linear", {"x": x.spec, "weight": weight.spec}, {"y": x.spec}, {})
    reason = cpu.chip.operators.of("linear")[0].declines(spec)
    assert reason == "weight was loaded for lookups alone, row by row"


def test_the_device_is_tried_in_a_child():
    assert CpuChip.check_device(0, 120, read_options(CpuChip, {})).verdict is Verdict.GOOD
    late = CpuChip.check_device(0, 0.001, read_options(CpuChip, {}))
    assert late.verdict is Verdict.BAD and "0.001 s" in late.text


def test_kernels_that_cannot_be_had_are_no_matter_of_patience(without_compiler):
    options = read_options(CpuChip, {"kernels": "native"})
    found = CpuChip.check_device(0, 120, options)
    assert found.verdict is Verdict.BAD and found.step == "anychip build cpu"
    assert found.text.startswith("cpu, build: ") and "no C++ compiler" in found.text


def test_without_a_compiler_nobody_is_asked_for_one_by_the_versions(without_compiler):
    assert CpuChip.probe({}).versions["compiler"] == "none found"


def test_errors_are_mapped():
    assert CpuChip.map_error(1) is STATUS[1]
    unknown = CpuChip.map_error(77)
    assert unknown.fatal and "77" in unknown.text


def test_findings_say_what_is_built(cpu, tmp_path):
    assert {f.verdict for f in cpu.chip.build.check()} == {Verdict.GOOD}
    fresh = build.CpuBuild(KernelChoice("portable", 1, tmp_path / "none"))
    assert fresh.check()[-1].verdict is Verdict.UNKNOWN and not (tmp_path / "none").exists()


def test_close_twice():
    calls = CpuCalls({})
    calls.chip.close()
    calls.chip.close()
