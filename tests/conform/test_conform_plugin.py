"""The kit in a vendor's own pytest run: what the plugin makes of each verdict."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conform_chips import install_granite

pytest_plugins = ("pytester",)

PLUGIN = "anychip.conform.pytest_plugin"
TEST = """
def test_conformance(conformance_check):
    conformance_check()
"""
INI = """
[tool.pytest.ini_options]
anychip_backend = "granite"
anychip_options = ["memory=64M"]
anychip_levels = ["build"]
"""
BODY = """
    def __init__(self, values):
        super().__init__(values)
        self.build = GraniteBuild()
"""
BUILD = """
from anychip.chips.fake.build import FakeBuild
from anychip.contract.build import Finding, Verdict

class GraniteBuild(FakeBuild):
    def check(self):
        return (Finding("driver", Verdict.BAD, "driver 1.2 loses bytes", "install 1.3"),)
"""
KINDS = """
import pytest
from anychip.conform.kit import LEVELS
from anychip.conform.proof import Check, Level, failed, inconclusive, missing, passed, unsupported

def lister(level, proofs):
    checks = [Check(k, level, lambda s, p=p: p, gate=k == "B1") for k, p in proofs.items()]
    return lambda subject: checks

def pytest_configure(config):
    levels = {level: lister(level, {}) for level in Level}
    levels[Level.BUILD] = lister(Level.BUILD, GATE)
    levels[Level.MEMORY] = lister(Level.MEMORY, {
        "M1": passed("exact"), "M2": failed("lost bytes"), "M3": missing("no free"),
        "M4": unsupported("an empty slot"), "M5": inconclusive("too little memory"),
    })
    patch = pytest.MonkeyPatch()
    patch.setattr("anychip.conform.pytest_checks.LEVELS", levels)
    config.add_cleanup(patch.undo)
"""


@pytest.fixture
def vendor(pytester, monkeypatch):
    """The folder of a vendor whose chip is a fake one with a driver that is known to be bad."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    install_granite(pytester.path / "site", monkeypatch, body=BODY, before=BUILD)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "site"))
    pytester.makepyprojecttoml(INI)
    pytester.makepyfile(test_granite=TEST)
    return pytester


def run(vendor, *words: str):
    return vendor.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider", *words)


def test_each_check_is_an_item_that_passes_fails_or_skips_with_its_text(vendor):
    result = run(vendor, "-v", "-rs")
    result.stdout.fnmatch_lines(
        [
            "*test_conformance?registration-P1? PASSED*",
            "*test_conformance?registration-D1? PASSED*",
            "*test_conformance?build-B1? PASSED*",
            "*test_conformance?build-B2? FAILED*",
            "*test_conformance?build-B3? SKIPPED*",
            "FAIL B2: *driver 1.2 loses bytes*",
            "*3 PASS, 1 FAIL, 1 UNSUPPORTED; fingerprint *",
            "SKIPPED * UNSUPPORTED B3: *empty slot*",
        ]
    )
    result.assert_outcomes(passed=3, failed=1, skipped=1)


def test_a_flag_wins_over_the_file_and_items_can_be_chosen(vendor):
    result = run(vendor, "-k", "B2", "--anychip-backend", "fake")
    result.assert_outcomes(passed=1, deselected=4)


def kinds(vendor, gate: str, *words: str):
    vendor.makeconftest(KINDS.replace("GATE", f'{{"B1": {gate}}}'))
    return run(vendor, "-v", "--anychip-level", "memory", *words)


def test_inconclusive_is_an_expected_failure_and_missing_is_one_that_counts(vendor):
    result = kinds(vendor, 'passed("")')
    result.assert_outcomes(passed=2, failed=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "*memory-M5? XFAIL (INCONCLUSIVE M5:*",
            "MISSING M3: no free",
            "INCONCLUSIVE M5: too little memory",
        ]
    )


def test_inconclusive_is_no_pass_either_where_expected_failures_are_run(vendor):
    kinds(vendor, 'passed("")', "--runxfail").assert_outcomes(passed=2, failed=3, skipped=1)


def test_behind_a_gate_that_failed_nothing_passes(vendor):
    result = kinds(vendor, 'failed("no library")')
    result.assert_outcomes(failed=1, xfailed=5)
    result.stdout.fnmatch_lines(["INCONCLUSIVE M1: not run: B1 failed"])


@pytest.mark.parametrize(
    "words, text",
    [
        (["--anychip-backend", ""], "which chip? Set anychip_backend"),
        (["--anychip-backend", "basalt"], "no chip 'basalt' is installed"),
        (["--anychip-option", "memroy=1"], "chip 'granite' has no option 'memroy'"),
        (["--anychip-level", "all"], "'all' is no level"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(vendor, words, text):
    result = run(vendor, *words)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"anychip: *{text}*".replace("?", "[?]")])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_run_that_asks_for_no_check_needs_no_chip(vendor):
    vendor.makepyprojecttoml("")
    vendor.makepyfile(test_granite="def test_nothing(): pass")
    result = run(vendor)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*conformance*")


def test_loading_the_plugin_imports_nothing_of_ours_but_itself():
    code = f"import sys, {PLUGIN}; print(sorted(m for m in sys.modules if m[:8] == 'anychip.'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == f"['anychip.conform', '{PLUGIN}']"


def test_pytest_finds_the_plugin_where_anychip_is_installed():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    entry = re.search(r'^\[project\.entry-points\.pytest11\]\nanychip = "(.+)"$', text, re.M)
    assert importlib.import_module(entry[1]).FIXTURE in TEST
