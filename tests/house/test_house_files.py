"""What has to agree between the files of the repository."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest
from packaging.requirements import Requirement

from anychip.flags import settings_of
from anychip.settings import ServeConfig
from long_files import LONG

REPOSITORY = pathlib.Path(__file__).parents[2]
SCRIPTS = ["scripts/serve", "scripts/test", "scripts/check", "scripts/wheel", ".ci/run"]


def pins(name: str) -> list[Requirement]:
    lines = (REPOSITORY / "requirements" / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and line[0] not in "#-"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run_and_stop_at_the_first_error(script):
    path = REPOSITORY / script
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text()


BESIDE = """
set -euo pipefail
. scripts/venv.sh
. scripts/beside.sh
breaks() { echo one; false; echo two; }
begin first breaks
begin second echo three
begin third bash -c "exit 3"
finish
echo four
"""


def test_what_runs_side_by_side_is_told_in_order_and_fails_by_name():
    done = subprocess.run(
        ["bash", "-c", BESIDE], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "one\nthree\n")
    assert done.stderr.splitlines() == [
        *(f"anychip: {name}" for name in ("first", "second", "third")),
        "anychip: failed: first third",
    ]


@pytest.mark.parametrize("name", ["serve.txt", "test.txt", "check.txt", "wheel.txt"])
def test_every_requirement_is_pinned(name):
    assert pins(name)
    for pin in pins(name):
        assert re.fullmatch(r"==[0-9a-z.]+", str(pin.specifier)), str(pin)


def test_every_dependency_of_the_package_is_pinned_for_serving_within_its_range():
    text = (REPOSITORY / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.S | re.M).group(1)
    wanted = [Requirement(line) for line in re.findall(r'"([^"]+)"', block)]
    assert len(wanted) >= 10
    for requirement in wanted:
        found = [p for p in pins("serve.txt") if p.name.lower() == requirement.name.lower()]
        assert found, requirement.name
        for pin in found:
            version = str(pin.specifier).removeprefix("==")
            assert requirement.specifier.contains(version), f"{pin} is outside {requirement}"


def test_the_tests_that_take_longest_are_there():
    assert not [name for name in LONG if not (REPOSITORY / "tests" / name).is_file()]


def test_serving_needs_no_framework():
    assert not {p.name.lower() for p in pins("serve.txt")} & {"torch", "transformers", "jax"}


def test_every_setting_has_one_line_of_help_and_a_field_name_like_its_flag():
    for setting in settings_of(ServeConfig):
        flag = setting.flag
        assert flag.names or flag.env
        assert "\n" not in flag.help
        other = {"config": "config_file"}
        assert not flag.names or other.get(flag.keys[0], flag.keys[0]) == setting.field
