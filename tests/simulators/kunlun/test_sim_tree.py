"""The tree builder: what a tree holds, and how its libraries are linked."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from sim_trees import NATIVE, shared_tree

from anychip_sim_kunlun.libraries import LIBRARIES, Library
from anychip_sim_kunlun.profiles import PROFILES, Profile

ENTRIES = [(p, lib) for p in PROFILES.values() for lib in LIBRARIES if lib.least <= p.runtime_abi]
IDS = [f"{profile.name}-{library.stem}" for profile, library in ENTRIES]


def said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def file_of(profile: Profile, library: Library) -> Path:
    return shared_tree("--profile", profile.name) / library.place / library.soname(profile)


def dynamic(file: Path, tag: str) -> list[str]:
    return re.findall(rf"\({tag}\).*\[(.*)\]", said("readelf", "-d", file))


@pytest.mark.parametrize(("profile", "library"), ENTRIES, ids=IDS)
def test_a_library_has_the_vendors_soname_and_no_search_path(profile: Profile, library: Library):
    file = file_of(profile, library)
    assert dynamic(file, "SONAME") == [file.name]
    assert not dynamic(file, "RUNPATH") + dynamic(file, "RPATH")
    plain = file.with_name(f"lib{library.stem}.so")
    assert plain.resolve() == file.resolve()


@pytest.mark.parametrize(("profile", "library"), ENTRIES, ids=IDS)
def test_a_library_needs_those_of_the_table_and_no_other_of_ours(
    profile: Profile, library: Library
):
    sonames = {lib.soname(profile): lib.stem for _, lib in ENTRIES}
    needed = {sonames[n] for n in dynamic(file_of(profile, library), "NEEDED") if n in sonames}
    assert needed == set(library.needs)


@pytest.mark.parametrize(("profile", "library"), ENTRIES, ids=IDS)
def test_a_library_is_whole_when_it_finds_the_others(profile: Profile, library: Library):
    tree = shared_tree("--profile", profile.name)
    folders = f"{tree}/runtime/lib:{tree}/sdk/lib"
    ended = subprocess.run(
        ["ldd", "-r", file_of(profile, library)],
        env={"LD_LIBRARY_PATH": folders, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "undefined symbol" not in ended.stdout + ended.stderr
    assert "not found" not in ended.stdout


@pytest.mark.parametrize(("profile", "library"), ENTRIES, ids=IDS)
def test_a_library_does_not_export_the_standard_library(profile: Profile, library: Library):
    names = said("nm", "-D", "--defined-only", "-P", file_of(profile, library)).splitlines()
    assert names
    assert not [n for n in names if re.match(r"_Z(N|NK|T[ISV]N?)?St", n)]


def test_the_runtimes_soname_follows_its_generation():
    runtime = LIBRARIES[0]
    assert runtime.soname(PROFILES["p800"]) == "libxpurt.so.2"
    assert runtime.soname(PROFILES["r200"]) == "libxpurt.so.1"


def test_only_the_third_generation_has_the_llm_libraries():
    names = {p.name for p in (shared_tree("--profile", "r200") / "sdk" / "lib").iterdir()}
    assert names == {"libxpuapi.so", "libbkcl.so"}


@pytest.mark.parametrize("backwards", [False, True])
def test_the_headers_go_together_in_either_order(backwards: bool):
    include = shared_tree() / "sdk" / "include"
    folders = [f"-I{include / name}" for name in (".", "xhpc", "xhpc/xblas", "xhpc/xfa", "xft")]
    headers = sorted(include.rglob("*.h"), reverse=backwards)
    assert len(headers) > 25
    ended = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-x", "c++", *folders, "-"],
        input="".join(f'#include "{header}"\n' for header in headers),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0 and not ended.stderr, ended.stderr


def test_the_record_names_the_part_of_the_sdk_that_each_library_belongs_to():
    record = json.loads((shared_tree() / "build.json").read_text())
    assert record["libraries"]["sdk/lib/libbkcl.so"] == "XCCL"
    assert len(record["libraries"]) == len(LIBRARIES)
    assert set(record["libraries"].values()) == set(PROFILES["p800"].components)


@pytest.mark.parametrize("name", ["xpuml.h", "runtime.h", "defs.h", "version.h"])
@pytest.mark.parametrize("folder", ["", "xre"])
def test_the_runtimes_headers_are_also_there_in_the_split_form_and_in_c(name: str, folder: str):
    include = shared_tree() / "sdk" / "include" / folder
    command = ["gcc", "-std=c11", "-fsyntax-only", "-Wall", f"-I{include}", "-x", "c", "-"]
    text = f"#include <xpu/{name}>\n"
    subprocess.run(command, input=text, text=True, check=True)


def test_the_version_files_have_the_forms_that_public_tools_read():
    tree = shared_tree()
    assert (tree / "runtime" / "version").read_text() == "version:5.0.21.19\n"
    lines = (tree / "sdk" / "xhpc" / "version.txt").read_text().splitlines()
    assert "Date: 20250417" in lines
    assert "3.0.2.5" in (tree / "sdk" / "xccl" / "version.txt").read_text()
    assert "20251017" in (tree / "sdk" / "xvllm" / "version.txt").read_text()


def test_the_headers_version_is_that_of_the_runtime():
    for profile, numbers in (("p800", (5, 0, 21)), ("r200", (4, 32, 0))):
        header = shared_tree("--profile", profile) / "sdk" / "include" / "xpu" / "version.h"
        found = re.findall(r"define XPURT_VERSION_(?:MAJOR|MINOR|THIRD) (\d+)", header.read_text())
        assert tuple(map(int, found)) == numbers


def test_a_tree_says_that_it_is_simulated():
    tree = shared_tree()
    for folder in (tree, tree / "sdk", tree / "runtime"):
        assert "SIMULATED" in (folder / "SIMULATED.txt").read_text()


def test_no_file_of_a_tree_knows_where_it_was_made():
    tree = shared_tree()
    for file in tree.rglob("*"):
        if file.is_file() and file.name != "board":
            text = file.read_bytes()
            assert str(NATIVE).encode() not in text and b"making-" not in text, file


def test_every_source_belongs_to_a_library_or_program():
    from anychip_sim_kunlun.libraries import PROGRAMS, matching

    used = {s for library in LIBRARIES for s in library.sources()}
    used |= {s for program in PROGRAMS for s in matching(program.patterns)}
    assert set(NATIVE.rglob("*.cpp")) == used
