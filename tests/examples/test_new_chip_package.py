"""What `anychip new-chip` writes works as it is: it is the example, imports, computes, conforms."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

import tiny_models
from answers.equality import Oracle, assert_same, config, greedy
from anychip.__main__ import main
from anychip.cli.new_chip import LONGEST_NAME, LONGEST_VENDOR, written_files
from anychip.conform.kit import run_kit
from anychip.conform.proof import Level, Status
from anychip.conform.subject import Subject
from anychip.contract.build import Verdict
from anychip.contract.discovery import list_chips, load_chip, open_chip
from anychip.contract.errors import ChipError, ContractError
from anychip.contract.registration import read_options
from anychip.engine.offline import OfflineEngine
from examples.conftest import PEBBLE
from examples.installed_chip import installed

SHORT, LONGEST = "q", "abcdefghi_jklmnopqrs"
LEVELS = (Level.REGISTRATION, Level.BUILD, Level.MEMORY, Level.EXECUTION)
BY_MACHINE = ("__pycache__", ".egg-info", "_cache")
"""What pip, Python and the tools add to a folder."""


@contextmanager
def written(name: str, folder: Path, old: str = "", new: str = ""):
    """A written and installed package. old, new: a text of the kernels, what stands there then."""
    assert main(["new-chip", name, "--into", str(folder)]) == 0
    package, site = folder / name, folder / f"{name}-site"
    site.mkdir()
    kernels = package / f"anychip_{name}" / "kernels" / f"{name}.c"
    if old:
        assert old in kernels.read_text()
        kernels.write_text(kernels.read_text().replace(old, new))
    with installed(package, site):
        yield package


@pytest.fixture(scope="module", params=[SHORT, LONGEST])
def package(request, tmp_path_factory):
    with written(request.param, tmp_path_factory.mktemp("new")) as folder:
        yield folder


def subject(name: str, build_dir: Path, **options: str) -> Subject:
    cls = load_chip(name)
    given = {"memory_mib": "64", "build_dir": str(build_dir), **options}
    return Subject(cls, 0, read_options(cls, given))


def test_example_is_what_the_command_writes_byte_for_byte():
    wanted = written_files("pebble", "example")
    there = {
        str(f.relative_to(PEBBLE)): f.read_bytes()
        for f in PEBBLE.rglob("*")
        if f.is_file() and not any(mark in str(f.relative_to(PEBBLE)) for mark in BY_MACHINE)
    }
    again = "anychip.cli.new_chip.written_files('pebble', 'example') is what belongs there"
    assert there == {path: text.encode() for path, text in wanted.items()}, again


@pytest.mark.parametrize("name", [SHORT, LONGEST, "a" * LONGEST_NAME])
def test_every_file_compiles_and_keeps_to_100_columns(name):
    for path, text in written_files(name, "v" * LONGEST_VENDOR).items():
        if path.endswith(".py"):
            compile(text, path, "exec")
        if path != "README.md":
            assert [line for line in text.splitlines() if len(line) > 100] == [], path
        assert text.endswith("\n") and " \n" not in text, path


def test_chip_is_listed_from_its_entry_point(package):
    (seen,) = (c for c in list_chips(timeout=60.0) if c.name == package.name)
    assert seen.available, seen.reason
    assert seen.distribution == f"anychip-{package.name.replace('_', '-')}"


def test_tests_that_come_with_it_pass(package, tmp_path):
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"tests/test_{package.name}.py"],
        cwd=package,
        env=os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout and "skipped" not in ran.stdout


@pytest.mark.parametrize("package", [LONGEST], indirect=True)
def test_kit_finds_nothing_wrong_with_it(package, tmp_path):
    results = run_kit(subject(package.name, tmp_path), LEVELS)
    assert {r.level for r in results} == set(LEVELS)
    bad = [r for r in results if r.proof.status not in (Status.PASS, Status.UNSUPPORTED)]
    assert [f"{r.key}: {r.proof.text}" for r in bad] == []
    assert sum(r.proof.status is Status.PASS for r in results) >= 15


def test_kit_finds_its_kernels_right(package, tmp_path):
    only = [f"O1:{op}" for op in ("rms_norm", "silu_and_mul")] + ["O3:rms_norm"]
    results = run_kit(subject(package.name, tmp_path), (Level.OPERATORS,), only)
    assert [r.proof.status for r in results] == [Status.PASS] * 3, results


def test_kit_finds_a_kernel_that_drops_eps(tmp_path):
    with written("dropped", tmp_path, "columns + eps)", "columns)"):
        only = ["O1:rms_norm", "O3:rms_norm", "O1:silu_and_mul"]
        results = run_kit(subject("dropped", tmp_path), (Level.OPERATORS,), only)
    found = {r.key: r.proof.status for r in results}
    assert found.pop("O1 silu_and_mul") is Status.PASS
    assert found == {"O1 rms_norm": Status.FAIL, "O3 rms_norm": Status.FAIL}


def test_a_model_answers_as_transformers_with_the_c_kernels(package, tmp_path):
    prompt = [5, 100, 200, 7, 9, 300, 21]
    folder = tiny_models.make_hf_folder(tmp_path / "model")
    small = {"max_running_requests": 2, "chunked_prefill_size": 16, "max_total_tokens": 512}
    oracle = Oracle(tiny_models.make_hf_model())
    with OfflineEngine(config(folder, backend=package.name, **small)) as offline:
        (found,) = offline.generate([prompt], greedy(8))
        assert_same(offline, oracle, prompt, found.token_ids, oracle.answer(prompt, 8))
        used = {(op, implementation) for op, implementation, _ in offline.info.operators}
    assert {(op, f"{package.name}.{op}") for op in ("rms_norm", "silu_and_mul")} <= used


def test_without_a_compiler_it_opens_without_kernels_and_says_so(
    package, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("PATH", str(tmp_path))
    caplog.set_level(logging.WARNING, "anychip.chip")
    chip = open_chip(package.name, 0, {"build_dir": str(tmp_path)})
    assert chip.operators.of("matmul") and not chip.operators.of("rms_norm")
    assert "has no native operators: no C++ compiler" in caplog.text
    assert "no C++ compiler" in chip.capabilities().facts["kernels"]
    (finding,) = chip.build.check()
    assert finding.verdict is Verdict.BAD and "install g++" in finding.step
    chip.close()


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("misspelt", "return OK;", "return OKAY;", "OKAY.* was not declared"),
        ("renamed", "_silu_and_mul(", "_silu(", "undefined symbol: renamed_silu_and_mul"),
    ],
)
def test_source_that_is_wrong_stops_the_start_with_what_the_compiler_or_loader_said(
    tmp_path, name, old, new, says
):
    with written(name, tmp_path, old, new), pytest.raises(ChipError, match=says):
        open_chip(name, 0, {"build_dir": str(tmp_path)})


def test_another_device_and_an_unknown_operator_are_refused(package):
    cls = import_module(f"anychip_{package.name}.registration")
    chip = next(c for c in vars(cls).values() if getattr(c, "name", None) == package.name)
    with pytest.raises(ChipError, match="no device 1; there is 0"):
        chip.open(1, read_options(chip, {}))
    with pytest.raises(ContractError, match="no operator is named 'rsqr'"):
        open_chip(package.name, 0, {"without": "rsqr"})
