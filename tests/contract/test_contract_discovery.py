"""Finding chips: lazily, in processes of their own, and saying why one is unavailable."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

import pytest

from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.discovery import (
    UnknownChip,
    chip_names,
    list_chips,
    load_chip,
    open_chip,
)
from anychip.contract.errors import ContractError

GOOD = """
    from contract_doubles import NullChip
    from anychip.contract.errors import ContractError
    from anychip.contract.registration import Option, Probe, register_chip
    print("a library that greets")

    @register_chip("tidy", contract=(0, 1))
    class Tidy(NullChip):
        options = (Option("size", int, 4, "how large"),)

    @register_chip("absent", contract=(0, 1))
    class Absent(NullChip):
        @classmethod
        def probe(cls):
            return Probe((), "no card in any slot")

    @register_chip("stuck", contract=(0, 1))
    class Stuck(NullChip):
        @classmethod
        def open(cls, device, options):
            raise ContractError("the driver is too old")
"""
MODULES = {
    "vendor_good": GOOD,
    "vendor_broken": "import libcard_that_is_not_there",
    "vendor_hanging": "import time; time.sleep(600)",
    "vendor_dying": "import os; os.abort()",
}
CHIPS = {
    "tidy": "vendor_good:Tidy",
    "absent": "vendor_good:Absent",
    "stuck": "vendor_good:Stuck",
    "misnamed": "vendor_good:Tidy",
    "nothing": "vendor_good:Nothing",
    "broken": "vendor_broken:Chip",
    "hanging": "vendor_hanging:Chip",
    "dying": "vendor_dying:Chip",
}


def install(folder, name, entries):
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [f"{chip} = {target}" for chip, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[anychip.chips]", *lines]) + "\n")


def put_on_path(folder, monkeypatch, but=None):
    """A distribution of chips, good and bad, on the import path; but: one that is left out."""
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    install(folder, "cards", {name: chip for name, chip in CHIPS.items() if name != but})
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    put_on_path(tmp_path, monkeypatch)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    """What a listing says, and which of the modules it left imported here."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        put_on_path(tmp_path_factory.mktemp("cards"), monkeypatch)
        found = {c.name: c for c in list_chips(timeout=15.0, describe=True) if c.name in CHIPS}
        return found, set(MODULES) & set(sys.modules)


def test_names_are_known_without_an_import(installed):
    assert set(CHIPS) <= set(chip_names())
    assert not set(MODULES) & set(sys.modules)


def test_listing_imports_nothing_here(listing):
    assert set(listing[0]) == set(CHIPS)
    assert not listing[1]


def test_good_chip_is_described(listing):
    tidy = listing[0]["tidy"]
    assert tidy.available and (tidy.distribution, tidy.version) == ("cards", "1.2")
    assert (tidy.vendor, tidy.contract) == ("tests", (0, 1))
    assert tidy.devices == ("0: nothing", "1: nothing more")
    assert tidy.versions == {"sdk": "7"}
    assert tidy.options == ("size (int, default 4): how large",)
    assert tidy.capabilities["activation_dtypes"] == "float32"
    assert tidy.capabilities["size"] == "0"
    assert "capture" in tidy.empty_slots and "memory.fill" not in tidy.empty_slots


def test_every_other_chip_says_why(listing):
    listed, _ = listing
    reasons = {
        "absent": "no card in any slot",
        "stuck": "does not open: the driver is too old",
        "misnamed": "@register_chip('misnamed', ...)",
        "nothing": "cannot be imported",
        "broken": "libcard_that_is_not_there",
        "hanging": "no answer within 15 s",
        "dying": "SIGABRT",
    }
    for name, reason in reasons.items():
        assert not listed[name].available
        assert reason in listed[name].reason, listed[name]


def test_without_describe_nothing_is_opened(installed, monkeypatch):
    short = {"stuck": CHIPS["stuck"]}
    folder = installed / "more"
    folder.mkdir()
    install(folder, "other", short)
    monkeypatch.setattr(
        "anychip.contract.discovery.entry_points", lambda group: _entries(folder, group)
    )
    (stuck,) = list_chips()
    assert stuck.available and not stuck.capabilities and not stuck.empty_slots


def _entries(folder: Path, group: str):
    from importlib.metadata import distributions

    found = [e for d in distributions(path=[str(folder)]) for e in d.entry_points]
    return [e for e in found if e.group == group]


def test_only_the_chip_that_was_asked_for_is_imported(installed):
    assert load_chip("tidy").name == "tidy"
    assert set(MODULES) & set(sys.modules) == {"vendor_good"}


def test_unknown_chip_names_the_installed_ones(installed):
    with pytest.raises(UnknownChip, match=r"no chip 'tydi' is installed.*tidy"):
        load_chip("tydi")


@pytest.mark.parametrize("name", ["broken", "nothing", "misnamed"])
def test_chip_that_cannot_be_loaded(installed, name):
    with pytest.raises(ContractError, match=name):
        load_chip(name)


def test_name_offered_twice_is_refused_with_both_owners(installed):
    install(installed, "impostor", {"tidy": "vendor_good:Absent"})
    with pytest.raises(ContractError, match="more than once") as caught:
        load_chip("tidy")
    assert "cards" in str(caught.value) and "impostor" in str(caught.value)


def test_open_checks_options_availability_and_device(installed):
    assert open_chip("tidy", 1, {"size": "3"}).name == "tidy"
    with pytest.raises(ContractError, match="no option 'sise'"):
        open_chip("tidy", 0, {"sise": "3"})
    with pytest.raises(ContractError, match="no card in any slot"):
        open_chip("absent", 0, {})
    with pytest.raises(ContractError, match=r"no device 2; it has: 0 \(nothing\), 1"):
        open_chip("tidy", 2, {})


def test_child_gets_and_gives_json(installed):
    (installed / "answers.py").write_text(
        "import os\n"
        "def double(x):\n    print('noise')\n    return {'twice': x * 2}\n"
        "def leave(x):\n    os._exit(x)\n"
        "def fail(x):\n    raise ValueError('as asked')\n"
    )
    assert run_in_child("answers:double", 21, 60.0) == {"twice": 42}
    with pytest.raises(ChildFailed, match="exit status 1: ValueError: as asked"):
        run_in_child("answers:fail", None, 60.0)
    with pytest.raises(ChildFailed, match="without an answer"):
        run_in_child("answers:leave", 0, 60.0)


def test_a_child_that_is_killed_leaves_its_last_words(installed):
    (installed / "dying.py").write_text(
        "import os, sys\n"
        "def abort(text):\n"
        "    print(text, file=sys.stderr, flush=True)\n"
        "    os.abort()\n"
    )
    for said, told in (
        ("first line\nno such fault", "no such fault"),
        (
            "first line\nno such fault. There are:\n  one\n  two",
            "no such fault. There are: one two",
        ),
    ):
        with pytest.raises(ChildFailed, match=f"^killed by SIGABRT: {told}$"):
            run_in_child("dying:abort", said, 60.0)
    with pytest.raises(ChildFailed, match=r"^killed by SIGABRT$"):
        run_in_child("dying:abort", "", 60.0)


def test_what_a_late_child_started_ends_with_it(installed):
    (installed / "starter.py").write_text(
        "import pathlib, subprocess, sys\n"
        "def start(path):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    pathlib.Path(path).write_text(str(child.pid))\n"
        "    child.wait()\n"
    )
    pid_file = installed / "pid"
    with pytest.raises(ChildFailed, match="no answer within 5 s"):
        run_in_child("starter:start", str(pid_file), 5.0)
    deadline = time.monotonic() + 20  # a kill takes effect when the kernel gets to it
    while is_running(pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid_file.read_text())


def is_running(pid: str) -> bool:
    """Whether the process is there and more than a zombie."""
    try:
        stat = (Path("/proc") / pid / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def with_kept_options(tmp_path_factory):
    """A listing where options were kept: one damaged record, one unknown name, one good."""
    folder = tmp_path_factory.mktemp("cards")
    built = tmp_path_factory.mktemp("build")
    built.chmod(0o700)
    kept = {"tidy": '{"size": "9"}', "absent": "{", "stuck": '{"colour": "red"}'}
    for name, text in kept.items():
        (built / f"{name}.json").write_text(text)
    with pytest.MonkeyPatch.context() as monkeypatch:
        put_on_path(folder, monkeypatch, but="hanging")  # its time would be waited for
        chips = list_chips(timeout=15.0, kept=built)
        return {c.name: c for c in chips if c.name in CHIPS}


def test_options_that_a_build_kept_are_read_where_the_chip_is(with_kept_options):
    assert with_kept_options["tidy"].available
    damaged, unknown = with_kept_options["absent"].reason, with_kept_options["stuck"].reason
    assert "absent.json" in damaged and "--forget" in damaged
    assert "has no option 'colour'" in unknown and "--forget" in unknown
