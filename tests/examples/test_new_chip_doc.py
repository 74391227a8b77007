"""docs/new_chip.md stays true: its snippets are in the files that they name, its commands parse."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from anychip.__main__ import COMMANDS
from anychip.cli.new_chip import written_files
from anychip.conform.index import CHECKS
from anychip.conform.proof import Level
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.signature import Tier

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs" / "new_chip.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.S | re.M)
MARKS = {"python": "# ", "c": "// "}
SNIPPETS = [text for language, text in BLOCKS if language in MARKS]
LINES = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]


def calls(line: str) -> list[list[str]]:
    """Command and arguments of every `anychip ...` in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word in (";", "&", "&&", "do"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part[1:] for part in parts if part[:1] == ["anychip"]]


CALLS = [call for line in LINES for call in calls(line)]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda text: text.partition("\n")[0])
def test_snippet_is_in_the_file_that_it_names(snippet):
    head, _, body = snippet.partition("\n")
    assert head.startswith(tuple(MARKS.values())), "the first line of a block names its file"
    assert body.strip("\n")
    assert body in (REPOSITORY / head.split()[1]).read_text()


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_command_exists_and_takes_its_flags(call):
    command, *arguments = call
    assert command in COMMANDS
    module = import_module(f"anychip.cli.{command.replace('-', '_')}")
    parser = module.add_arguments()
    if (command, arguments[:1]) == ("conform", ["diff"]):
        parser, arguments = module._diff_arguments(), arguments[1:]
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


def test_checks_that_it_names_are_those_of_the_kit():
    levels = re.findall(r"--level (\S+)", "\n".join(LINES))
    assert len(levels) >= 4 and set(levels) <= {level.value for level in Level}
    for pattern in re.findall(r"--only '?([^'\s]+)", "\n".join(LINES)):
        id, _, op = pattern.partition(":")
        assert id in {"*", *CHECKS} and op in {"*", *CATALOGUE}, pattern


def test_package_that_it_writes_is_the_one_that_it_installs_and_asks_for():
    (written,) = (call for call in CALLS if call[0] == "new-chip")
    assert written[1:4] == ["granite", "--into", ".."]
    assert "pip install -e ../granite" in LINES
    backends = {
        backend for call in CALLS for backend in re.findall(r"--backend (\w+)", " ".join(call))
    }
    assert backends - {"fake", "cpu"} == {"granite"}


def test_what_it_changes_in_a_kernel_is_there_and_is_put_back():
    source = written_files("granite", "someone")["anychip_granite/kernels/granite.c"]
    changed, changes = source, [line for line in LINES if line.startswith("sed -i ")]
    for line in changes:
        old, new = re.fullmatch(r"sed -i 's/(.+)/(.+)/' \.\./granite/\S+/granite\.c", line).groups()
        assert old in changed, line
        changed = "\n".join(row.replace(old, new, 1) for row in changed.split("\n"))
    assert len(changes) == 6 and changed == source
