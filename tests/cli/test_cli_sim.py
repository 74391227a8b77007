"""`anychip sim`: finds simulators by entry point, and hands the rest over to the one named."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from anychip.__main__ import main
from anychip.cli import sim


@pytest.fixture
def installed(monkeypatch):
    """Replaces the installed simulators by those named; each notes what it is handed."""
    calls: list[list[str]] = []

    def command(argv):
        calls.append(argv)
        return 7

    def install(**values: str):
        monkeypatch.setitem(sys.modules, "a_simulator", SimpleNamespace(main=command, number=3))
        entries = [EntryPoint(n, v, sim.ENTRY_POINT_GROUP) for n, v in values.items()]
        monkeypatch.setattr(sim, "entry_points", lambda group: entries)
        return calls

    return install


def test_the_listing_names_each_simulator_and_imports_none(installed, capsys):
    installed(zeta="no_such_module:main", alpha="a_simulator:main")
    assert main(["sim"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Installed simulators: alpha (") and "zeta (" in text
    with pytest.raises(SystemExit) as end:
        main(["sim", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "Installed simulators: alpha" in text and "anychip sim build NAME --help" in text


def test_without_any_it_says_how_one_is_installed(installed, capsys):
    installed()
    assert main(["sim"]) == 0
    assert "pip install -e ./simulators/NAME" in capsys.readouterr().out
    assert main(["sim", "build", "x"]) == 2
    assert "pip install -e ./simulators/NAME" in capsys.readouterr().err


def test_all_that_follows_is_handed_over_and_the_exit_code_comes_back(installed):
    calls = installed(alpha="a_simulator:main")
    line = ["sim", "build", "alpha", "--prefix", "a b", "--help", "-x"]
    assert main(line) == 7
    assert calls == [["build", "--prefix", "a b", "--help", "-x"]]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["build"], "which one? Installed simulators: alpha ("),
        (["build", "--prefix", "x"], "which one?"),
        (["build", "alpa"], "there is no simulator 'alpa'; the nearest is 'alpha'"),
        (["build", "quite-other"], "there is no simulator 'quite-other'; installed are alpha"),
        (["destroy", "alpha"], "the one thing to ask for is `build`"),
        (["alpha"], "the one thing to ask for is `build`"),
        (["--devices", "2"], "unrecognized arguments"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(installed, capsys, words, reason):
    calls = installed(alpha="a_simulator:main")
    assert main(["sim", *words]) == 2
    said = capsys.readouterr().err
    assert reason in said and said.count("\n") == 1
    assert not calls


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:main", "cannot be imported: No module named 'no_such_module'"),
        ("a_simulator:absent", "cannot be imported"),
        ("a_simulator:number", "is no command"),
    ],
)
def test_a_broken_simulator_is_told_and_not_swallowed(installed, capsys, value, reason):
    installed(alpha=value)
    assert main(["sim", "build", "alpha"]) == 1
    assert reason in capsys.readouterr().err


def test_the_simulator_of_this_repository_is_found():
    assert any(entry.dist for entry in sim.entry_points(group=sim.ENTRY_POINT_GROUP))
