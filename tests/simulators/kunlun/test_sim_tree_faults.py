"""Faults that the builder makes: each is really there, and is seen as users see it."""

import subprocess
from pathlib import Path

import pytest
from sim_trees import SimTree, build, built, shared_tree, with_accounts

MALLOC = """
import ctypes
xpu = ctypes.CDLL("libxpurt.so")
print(xpu.xpu_malloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_uint64(4096), 0))
"""


def exported(tree: Path, name: str) -> str:
    file = next(tree.rglob(name))
    command = ["nm", "-D", "--defined-only", file]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def undefined(tree: Path, name: str) -> str:
    """What the field's `ldd -r` says of a library of this tree."""
    ended = subprocess.run(
        ["ldd", "-r", next(tree.rglob(name))],
        env={"LD_LIBRARY_PATH": f"{tree}/runtime/lib:{tree}/sdk/lib", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


def test_a_missing_symbol_is_gone_and_who_needs_it_says_so():
    tree = shared_tree("--fault", "missing-symbol=xpusim::reach")
    assert "_ZN6xpusim5reachEPKvm" not in exported(tree, "libxpurt.so.2")
    assert "undefined symbol: _ZN6xpusim5reachEPKvm" in undefined(tree, "libxpuapi.so")
    whole = shared_tree()
    assert "_ZN6xpusim5reachEPKvm" in exported(whole, "libxpurt.so.2")
    assert "undefined symbol" not in undefined(whole, "libxpuapi.so")


def test_a_c_symbol_can_be_missing_and_its_library_still_loads(tmp_path: Path):
    tree = shared_tree("--fault", "missing-symbol=xpu_event_wait")
    names = exported(tree, "libxpurt.so.2")
    assert " xpu_event_wait\n" not in names and " xpu_event_record\n" in names
    assert with_accounts(tree, tmp_path).run(MALLOC) == "0\n"


def test_symbols_of_two_libraries_can_be_missing_at_once(tmp_path: Path):
    faults = ["--fault", "missing-symbol=xpusim::launch", "--fault", "missing-symbol=bkcl_send"]
    said = built(tmp_path / "tree", *faults)
    assert "left out of libbkcl.so: _Z" in said and "left out of libxpurt.so.2: _ZN6xpusim" in said
    assert "bkcl_send" not in exported(tmp_path / "tree", "libbkcl.so")


def test_a_symbol_that_no_library_has_is_refused_with_those_like_it(tmp_path: Path):
    ended = build(tmp_path / "tree", "--fault", "missing-symbol=xpu_event")
    assert ended.returncode == 1 and "no library exports it" in ended.stderr
    assert "xpu_event_create" in ended.stderr
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("fault", ["duplicate-library", "missing-library"])
def test_a_library_that_the_profile_has_not_is_refused(tmp_path: Path, fault: str):
    for name, flags in (("xft_blocks", ["--profile", "r200"]), ("xft", [])):
        ended = build(tmp_path / "tree", "--fault", f"{fault}={name}", *flags)
        assert ended.returncode == 2 and not (tmp_path / "tree").exists()
        assert f"--fault {fault}={name}: no library {name!r}; " in ended.stderr
        assert "has xpurt, xpuml, xpuapi, " in ended.stderr


def test_a_missing_library_is_not_found():
    tree = shared_tree("--fault", "missing-library=xpuapi")
    assert not list(tree.rglob("libxpuapi.so*"))
    assert "libxpuapi.so => not found" in undefined(tree, "libxpu_blas.so")


def test_a_duplicate_library_lies_in_both_folders():
    tree = shared_tree("--fault", "duplicate-library=xpurt", "--fault", "duplicate-library=bkcl")
    found = {str(p.relative_to(tree)) for p in tree.rglob("*.so*")}
    assert {"runtime/lib/libxpurt.so.2", "sdk/lib/libxpurt.so.2", "sdk/lib/libxpurt.so"} <= found
    assert {"runtime/lib/libbkcl.so", "sdk/lib/libbkcl.so"} <= found


def test_without_a_driver_the_tool_prints_nothing_and_the_libraries_say_why(tmp_path: Path):
    tree = with_accounts(shared_tree("--fault", "no-driver"), tmp_path)
    assert tree.smi("-m") == tree.smi() == tree.smi("-q") == ""
    assert tree.run(MALLOC).strip().lstrip("-") == "703"
    code = 'import ctypes\nprint(ctypes.CDLL("libxpuml.so.1").xpumlInit())'
    assert tree.run(code) == "9\n"


def test_a_foreign_tool_of_the_same_name_is_told_apart_by_what_it_says(tmp_path: Path):
    tree = shared_tree("--fault", "foreign-smi")
    assert not (tree / "bin" / "xpu_smi").exists()
    command = [tree / "bin" / "xpu-smi", "-m"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0 and "1d22" not in ended.stdout.lower() and "Intel" in ended.stdout


def test_our_tool_has_both_of_the_vendors_names(tmp_path: Path):
    tree = with_accounts(shared_tree(), tmp_path)
    assert tree.call([str(tree.root / "bin" / "xpu-smi"), "-m"]) == tree.smi("-m")


@pytest.mark.parametrize(("driver", "code"), [("5.0.9.1", "704"), ("5.0.21.47", "0")])
def test_a_driver_that_is_too_old_is_refused_by_the_runtime(tmp_path: Path, driver: str, code: str):
    tree: SimTree = with_accounts(shared_tree("--driver", driver), tmp_path)
    assert f"Driver Version: {driver}" in tree.smi()
    assert tree.run(MALLOC).strip().lstrip("-") == code


def test_another_runtime_is_told_by_its_version_call_its_header_and_the_tool(tmp_path: Path):
    tree = with_accounts(shared_tree("--runtime", "5.3.13.0", "--driver", "5.4"), tmp_path)
    code = """
import ctypes
xpu, major, minor = ctypes.CDLL("libxpurt.so"), ctypes.c_uint32(), ctypes.c_uint32()
assert xpu.xpu_get_runtime_version(ctypes.byref(major), ctypes.byref(minor)) == 0
print(major.value, minor.value)
"""
    assert tree.run(code) == "5 3\n"
    assert (tree.root / "runtime" / "version").read_text() == "version:5.3.13.0\n"
    assert "XPU-RT Version: 5.3.13" in tree.smi()


def test_every_fault_is_listed():
    ended = build(Path("unused"), "--list-faults")
    assert ended.returncode == 0
    built_in = [
        "missing-symbol",
        "missing-library",
        "duplicate-library",
        "no-driver",
        "foreign-smi",
    ]
    at_run_time = ["oom", "kexception", "hang", "lost", "short_copy", "slow_link", "sick"]
    assert all(name in ended.stdout for name in [*built_in, *at_run_time, "XPUSIM_FAULTS"])
