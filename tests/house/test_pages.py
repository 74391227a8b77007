"""What holds of every page: links lead somewhere, commands parse, words stand once, tables show."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from anychip.__main__ import COMMANDS

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "examples/*/*.md", "simulators/*/*.md", "bench/**/*.md")
    for path in REPOSITORY.glob(pattern)
)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.S | re.M)
CALL = re.compile(r"(?:^|[;&|(] *|/bin/|do )anychip +([^;&|#)\n]+)", re.M)
SHELLS = ("bash", "sh", "")
KNOWN = {
    *(".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"),
    *("bench", "deploy", "docs", "examples", "requirements", "scripts", "simulators", "src"),
    "tests",
}
"""What the repository's root holds. Whatever else is there was left behind by a program."""


def named(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """How the headings of a page are linked to, as GitHub makes it."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


def test_the_root_holds_what_is_known_alone():
    if not (REPOSITORY / ".git").exists():
        pytest.skip("no checkout: what is tracked is not known")
    command = ["git", "-c", f"safe.directory={REPOSITORY}", "ls-files", "-z"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert {name.partition("/")[0] for name in done.stdout.split("\0") if name} == KNOWN


@named(PAGES)
def test_links_lead_to_a_file_and_a_heading(page):
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, heading = link.partition("#")
        if re.match(r"https?:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and heading not in anchors(target)):
            lost.append(link)
    assert not lost


@named(PAGES)
def test_tables_and_headings_stand_apart_from_text(page):
    """Where no empty line is between, they are shown as text."""
    rows = prose(page).splitlines()
    glued = [
        row
        for above, row in pairwise(rows)
        if above.strip()
        and row.strip()
        and (row.startswith("|") != above.startswith("|") or re.match(r"#+ ", row))
        and not re.match(r"#+ |<!--", above)
    ]
    assert not glued


@named(PAGES)
def test_commands_of_a_page_take_their_flags(page):
    for language, block in FENCE.findall(page.read_text()):
        for line in CALL.findall(block.replace("\\\n", " ")) if language in SHELLS else ():
            command, *arguments = line.split()
            assert command in COMMANDS or command in ("--help", "--version"), line
            assert not unknown(command, arguments), line


def unknown(command: str, arguments: list[str]) -> list[str]:
    """The flags that the command does not have."""
    if command not in COMMANDS or command == "sim":
        return []
    module = import_module(f"anychip.cli.{command.replace('-', '_')}")
    parser = module._diff_arguments() if arguments[:1] == ["diff"] else module.add_arguments()
    flags = {name for action in parser._actions for name in action.option_strings}
    return [w for w in arguments if re.match(r"--\w", w) and w.partition("=")[0] not in flags]


def test_each_word_of_the_glossary_stands_once_and_in_its_place():
    text = (REPOSITORY / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| \*\*(.+?)\*\*", text, re.M)
    assert len(words) >= 150
    assert len(words) == len(set(words)) and words == sorted(words, key=str.lower)
