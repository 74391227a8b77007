"""The tree builder: a tree comes whole, in one step, and only where something would change."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sim_trees import SimTree, build, built, with_accounts

from anychip_sim_kunlun.compiler import find_compiler
from anychip_sim_kunlun.objects import ObjectCache
from anychip_sim_kunlun.refusal import BuildRefused

COUNT_CARDS = """
import ctypes, sys
ml = ctypes.CDLL("libxpuml.so.1")
count = ctypes.c_uint()
def cards():
    assert ml.xpumlDeviceGetCount(ctypes.byref(count)) == 0
    return count.value
assert ml.xpumlInit() == 0
print(cards(), flush=True)
sys.stdin.read()
print(cards())
"""


def test_a_build_tells_its_steps_what_it_made_and_what_comes_next(tmp_path: Path):
    said = built(tmp_path / "tree")
    assert "runtime/lib/libxpurt.so.2: " in said and "bin/xpu_smi: " in said
    assert f"export KUNLUN_SDK_ROOT={tmp_path}/tree/sdk\n" in said
    assert f"export KUNLUN_RUNTIME_LIB={tmp_path}/tree/runtime/lib\n" in said
    steps = ["anychip build", "anychip doctor --backend", "anychip serve --backend"]
    assert all(f"  {step} kunlun" in said for step in steps)


def test_the_variables_of_a_prefix_with_spaces_survive_a_shell(tmp_path: Path):
    prefix = tmp_path / "two words"
    said = built(prefix)
    exports = [line for line in said.splitlines() if line.strip().startswith("export ")]
    script = "\n".join([*exports, 'ls "$KUNLUN_SDK_ROOT/include/xpu" "$KUNLUN_RUNTIME_LIB"'])
    listed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert "runtime.h" in listed.stdout and "libxpurt.so" in listed.stdout
    smi = subprocess.run([prefix / "bin" / "xpu_smi", "-m"], capture_output=True, check=True)
    assert smi.stdout.count(b"\n") == 2


def test_a_second_build_of_the_same_does_nothing(tmp_path: Path):
    built(tmp_path / "tree")
    board = (tmp_path / "tree" / "state" / "board").stat().st_ino
    assert "unchanged" in built(tmp_path / "tree")
    assert (tmp_path / "tree" / "state" / "board").stat().st_ino == board


def test_a_build_of_something_else_replaces_the_tree_and_leaves_nothing_beside_it(tmp_path: Path):
    built(tmp_path / "tree", "--devices", "1")
    assert "made in" in built(tmp_path / "tree", "--devices", "3")
    record = json.loads((tmp_path / "tree" / "build.json").read_text())
    assert record["devices"] == 3 and record["simulated"] is True
    assert [p.name for p in tmp_path.iterdir()] == ["tree"]


@pytest.mark.parametrize("lost", ["runtime/lib/libxpurt.so.2", "bin/xpu-smi", "build.json"])
def test_a_tree_that_lost_a_file_is_made_again_or_refused(tmp_path: Path, lost: str):
    tree = tmp_path / "tree"
    built(tree)
    (tree / lost).unlink()
    ended = build(tree)
    if lost == "build.json":  # then it is nobody's to replace
        assert ended.returncode == 1 and "is no tree of this simulator" in ended.stderr
    else:
        assert "made in" in ended.stdout and (tree / lost).exists()


def test_what_was_left_by_a_build_that_was_killed_is_removed(tmp_path: Path):
    left = tmp_path / ".tree.making-1"
    left.mkdir()
    built(tmp_path / "tree")
    assert not left.exists()


def test_two_builds_of_one_prefix_at_once_make_it_once(tmp_path: Path):
    prefix = tmp_path / "a tree"
    command = [sys.executable, "-m", "anychip_sim_kunlun", "build", "--prefix", str(prefix)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sorted("made in" in text for text in said) == [False, False, True]


def test_a_process_keeps_the_tree_that_it_started_on(tmp_path: Path):
    built(tmp_path / "tree", "--devices", "1")
    tree = SimTree(tmp_path / "tree", tmp_path / "tree" / "state")
    with tree.start(COUNT_CARDS) as child:
        assert child.stdout.readline() == "1\n"
        built(tmp_path / "tree", "--devices", "4")
        assert child.communicate("", timeout=60)[0] == "1\n"
        assert child.returncode == 0
    assert tree.smi("-m").count("\n") == 4


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_somebody_else_put_there_stays(tmp_path: Path, kind: str):
    prefix, other = tmp_path / "mine", tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    if kind == "folder":
        other.rename(prefix)
    elif kind == "file":
        prefix.write_text("mine")
    else:
        prefix.symlink_to(other)
    ended = build(prefix)
    assert ended.returncode == 1 and "is no tree of this simulator" in ended.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    assert "mine" in (prefix if kind == "file" else prefix / "thesis.txt").read_text()


def test_an_empty_folder_may_be_filled(tmp_path: Path):
    (tmp_path / "tree").mkdir()
    assert "made in" in built(tmp_path / "tree")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    ended = build(tmp_path / "file" / "tree")
    assert ended.returncode == 1
    assert ended.stderr.startswith("anychip sim: error:") and str(tmp_path) in ended.stderr


def test_without_a_compiler_the_way_out_is_told(tmp_path: Path):
    ended = build(tmp_path / "tree", PATH=str(tmp_path))
    assert ended.returncode == 1 and not (tmp_path / "tree").exists()
    assert "looked for g++ and clang++" in ended.stderr and "apt-get install g++" in ended.stderr


def test_what_the_compiler_says_is_passed_on(tmp_path: Path):
    (tmp_path / "wrong.cpp").write_text("int f() { return unheard_of; }\n")
    cache = ObjectCache(tmp_path / "cache", tmp_path, find_compiler())
    with pytest.raises(BuildRefused, match="unheard_of"):
        cache.object_of(tmp_path / "wrong.cpp")


def test_an_object_is_compiled_again_where_source_header_or_define_changed(tmp_path: Path):
    source, header = tmp_path / "a file.cpp", tmp_path / "a header.h"
    source.write_text('#include "a header.h"\nint f() { return VALUE + MORE; }\n')
    header.write_text("#define VALUE 1\n")

    def compiled(define: str = "MORE=1") -> Path:
        # A cache of its own for each build: within one, a header is read once.
        return ObjectCache(tmp_path / "cache", tmp_path, find_compiler()).object_of(
            source, (define,)
        )

    first = compiled()
    assert compiled() == first
    changed = {compiled("MORE=2")}
    header.write_text("#define VALUE 2\n")
    changed |= {compiled()}
    source.write_text(source.read_text() + "\n")
    changed |= {compiled()}
    assert len(changed) == 3 and first not in changed
    shutil.rmtree(tmp_path / "cache")
    assert compiled() in changed


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--devices", "0"], "--devices 0: from 1 to 16"),
        (["--devices", "17"], "from 1 to 16"),
        (["--memory-mib", "98305"], "from 64 to 98304"),
        (["--driver", "five"], "two to four numbers"),
        (["--runtime", "5.0.1.2.3"], "two to four numbers"),
        (["--fault", "no-drivers"], "there are missing-symbol, missing-library"),
        (["--fault", "missing-symbol"], "write it as missing-symbol=NAME"),
        (["--fault", "no-driver=1"], "write it as no-driver"),
        (["--fault", "missing-library=xpu"], "p800 has xpurt, xpuml"),
        (["--profile", "k200"], "invalid choice"),
        (["--prof", "p800"], "unrecognized arguments"),
    ],
)
def test_a_wrong_flag_is_refused_before_anything_is_made(tmp_path: Path, flags, reason: str):
    ended = build(tmp_path / "tree", *flags)
    assert ended.returncode == 2 and reason in ended.stderr
    assert not list(tmp_path.iterdir())


def test_smaller_cards_are_told_loudly(tmp_path: Path):
    said = built(tmp_path / "tree", "--memory-mib", "512", "--devices", "1")
    assert "SHRUNK CARDS: a P800 OAM has 98304 MiB" in said
    smi = with_accounts(tmp_path / "tree", tmp_path / "state").smi("-m").split()
    assert smi[17:19] == ["0", "512"]


def test_a_prefix_with_a_comma_is_refused_since_options_part_folders_by_it(tmp_path):
    done = build(tmp_path / "a,b")
    assert done.returncode == 2 and "no comma" in done.stderr


def test_a_reader_that_leaves_ends_the_list_without_a_traceback():
    command = f"{shlex.quote(sys.executable)} -m anychip_sim_kunlun build --list-faults"
    script = f"set -o pipefail; {command} | head -0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
