"""xpu_smi: the forms that public tools read, and the same numbers as the library's."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from sim_trees import SimTree, shared_tree, with_accounts
from test_sim_telemetry import MIB, Holder, told


@pytest.fixture
def tree(tmp_path: Path) -> SimTree:
    return with_accounts(shared_tree(), tmp_path / "state")


def machine(tree: SimTree) -> list[list[str]]:
    return [shlex.split(line) for line in tree.smi("-m").splitlines()]


def test_each_card_has_one_line_of_32_fields(tree: SimTree):
    cards = machine(tree)
    assert [len(card) for card in cards] == [32, 32]
    assert cards[1] == [
        *("00000000:05:00.0", "1", "1", "SIM000000000001", "36", "0", "0", "0", "86"),
        *["1450"] * 6,
        *("0", "96", "0", "98304", "0", "1.0:2.6:1.39.1.7", "P800 OAM"),
        *["0"] * 10,
    ]
    assert '"P800 OAM"' in tree.smi("-m")


def test_memory_and_l3_stand_in_their_columns(tree: SimTree):
    with Holder(tree) as holder:
        holder.do(f"hold({700 * MIB}); hold({3 * MIB}, 1)")
        assert machine(tree)[0][15:19] == ["3", "96", "700", "98304"]
        assert machine(tree)[1][15:19] == ["0", "96", "0", "98304"]
        assert told(tree, "memory()")[1] == 700 * MIB


def query(tree: SimTree, *flags: str) -> dict[str, str]:
    """Name -> value of a query, section before the name where it has one."""
    found, section = {}, ""
    for line in tree.smi("-q", *flags).splitlines():
        name, mark, value = line.strip().partition(" : ")
        if not mark:
            name, mark, value = line.strip().partition(": ")
        if not mark:
            section = line.strip()
        elif line.startswith("        "):
            found[f"{section}/{name.strip()}"] = value.strip()
        else:
            found[name.strip()] = value.strip()
    return found


def test_a_query_has_the_lines_that_public_tools_look_for(tree: SimTree):
    text = tree.smi("-q", "-i", "1")
    assert re.search(r"^Driver Version[ \t]*:[ \t]*5\.0\.21\.21$", text, re.M)
    assert re.search(r"^XPU-RT Version[ \t]*:[ \t]*5\.2\.0$", text, re.M)
    assert re.search(
        r"^    Memory Usage\n(        [^\n]*\n)+?        Free +: 98304 MiB$", text, re.M
    )
    assert re.search(r"^        Xpu +: 0 %$", text, re.M)
    assert re.search(r"^    Processes +: None$", text, re.M)
    found = query(tree, "-i", "1")
    assert found["Attached XPUs"] == "2"
    assert found["PCI/Device Id"] == "0x36881D22" and found["PCI/Bus Id"] == "00000000:05:00.0"
    assert found["Power Readings/Enforced Power Limit"] == "400.00 W"


def test_the_number_of_the_device_file_is_not_the_index(tree: SimTree):
    assert query(tree, "-i", "0")["Minor Number"] == "0"
    assert query(tree, "-i", "1")["Minor Number"] == "2"


def test_a_query_tells_processes_and_memory(tree: SimTree):
    with Holder(tree) as holder:
        holder.do(f"hold({5 * MIB})")
        text = tree.smi("-q", "-i", "0")
        assert re.search(rf"^        Process ID +: {holder.process.pid}$", text, re.M)
        assert re.search(r"^    Processes$", text, re.M)
        found = query(tree, "-i", "0")
        assert found["Memory Usage/Used"] == "5 MiB"
        assert found["Memory Usage/Free"] == "98299 MiB"


def test_the_table_has_both_versions_in_its_head_and_whole_lines(tree: SimTree):
    with Holder(tree) as holder:
        holder.do(f"hold({5 * MIB})")
        lines = tree.smi().splitlines()
        assert str(holder.process.pid) in lines[-2]
    assert re.search(r"XPU-SMI +Driver Version: 5\.0\.21\.21 +XPU-RT Version: 5\.2\.0 ", lines[1])
    assert re.search(r"^\|   0  P800 OAM +N/A   \| 00000000:03:00\.0 N/A \|", lines[7])
    assert re.search(r"36C  N/A +86W / 400W \| +5MiB / 98304MiB \| +0% +Default \|$", lines[8])
    assert {len(line) for line in lines if line} == {79}


def test_one_card_alone_by_its_index_in_every_form(tree: SimTree):
    assert [line.split()[2] for line in tree.smi("-m", "-i", "1").splitlines()] == ["1"]
    assert tree.smi("--machine-readable", "--id=1") == tree.smi("-i", "1", "-m")
    assert tree.smi("-L").splitlines()[1].startswith("XPU 1: P800 OAM")


@pytest.mark.parametrize(
    ("flags", "status", "reason"),
    [
        (["-i", "2", "-m"], 1, 'there is no XPU "2"'),
        (["-i", "x", "-m"], 1, 'there is no XPU "x"'),
        (["-x"], 2, "invalid option"),
        (["topo"], 2, '"topo" is not simulated'),
    ],
)
def test_what_is_not_there_or_not_simulated_is_refused(tree: SimTree, flags, status, reason):
    ended = subprocess.run(
        [tree.root / "bin" / "xpu_smi", *flags],
        env=tree.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (status, "") and reason in ended.stderr


def test_an_older_generation_has_its_own_identity(tmp_path: Path):
    tree = with_accounts(shared_tree("--profile", "r200"), tmp_path / "state")
    card = machine(tree)[0]
    assert (card[21], card[18]) == ("R200", "16384")
    assert "0x36841D22" in tree.smi("-q") and "Driver Version: 4.32.0.1" in tree.smi()
