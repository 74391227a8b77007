"""docs/new_chip.md stays true: its snippets are in the files that they name, its commands parse."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from anychip.__main__ import COMMANDS
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.signature import Tier

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs" / "new_chip.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.S | re.M)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
LINES = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
CALLS = [shlex.split(line)[1:] for line in LINES if line.startswith("anychip ")]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda text: text.partition("\n")[0])
def test_snippet_is_in_the_file_that_it_names(snippet):
    head, _, body = snippet.partition("\n")
    assert head.startswith("# "), "the first line of a python block names its file"
    assert body.strip("\n")
    assert body in (REPOSITORY / head.removeprefix("# ")).read_text()


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_command_exists_and_takes_its_flags(call):
    command, *arguments = call
    assert command in COMMANDS
    parser = import_module(f"anychip.cli.{command}").add_arguments()
    _, unknown = parser.parse_known_args(arguments)
    assert not unknown


def test_options_of_the_commands_are_declared_by_the_example():
    text = (REPOSITORY / "examples/pebble/anychip_pebble/registration.py").read_text()
    declared = set(re.findall(r'Option\("(\w+)"', text))
    refused = {"speed"}  # shown being refused
    used = set(re.findall(r"--chip-option (\w+)=", "\n".join(LINES)))
    assert used - refused <= declared and refused <= used


def test_files_that_it_speaks_of_exist():
    named = set(re.findall(r"`((?:src|tests|examples|docs)/[\w./]+)`", TEXT))
    named |= {f"src/anychip/{name}" for name in re.findall(r"`((?:contract)/[\w./]+)`", TEXT)}
    named |= {f"docs/{link}" for link in re.findall(r"\]\((\.\./[\w./]+)\)", TEXT)}
    assert len(named) >= 12
    assert [name for name in sorted(named) if not (REPOSITORY / name).exists()] == []


def test_operators_that_it_lists_are_those_of_the_catalogue():
    (listed,) = re.findall(r"\*\*required native\*\*.*?:(.*?)\. Each", TEXT, re.S)
    wanted = {name for name, s in CATALOGUE.items() if s.tier is Tier.REQUIRED}
    assert set(re.findall(r"`(\w+)`", listed)) == wanted


def test_example_is_installed_as_it_says():
    assert "pip install -e examples/pebble" in LINES
    assert (REPOSITORY / "examples/pebble/pyproject.toml").is_file()
