"""The compiler cache of contract/compile.py: keys, one build, clear failures."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import pytest

from anychip.contract.compile import (
    TURNS,
    BuildOrder,
    NoCompiler,
    cache_key,
    compile_library,
    find_compiler,
    is_intact,
)
from anychip.contract.errors import ChipError, ChipLayer, ErrorKind

SOURCE = '#include "seven.h"\nextern "C" int seven() { return SEVEN; }\n'


@pytest.fixture
def order(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "seven.h").write_text("#define SEVEN 7\n")
    (folder / "seven.cpp").write_text(SOURCE)
    return BuildOrder("some", "seven", (folder / "seven.cpp",), ("-O1",))


def build(order, cache, lines=None, compiler=None):
    said = [] if lines is None else lines
    return compile_library(order, cache_dir=cache, compiler=compiler, progress=said.append)


def test_builds_once_with_progress(order, tmp_path):
    cache, lines = tmp_path / "deep" / "cache", []
    path = build(order, cache, lines)
    assert ctypes.CDLL(str(path)).seven() == 7
    assert lines and stat.S_IMODE(cache.stat().st_mode) == 0o700
    before, again = path.stat().st_mtime_ns, []
    assert build(order, cache, again) == path
    assert path.stat().st_mtime_ns == before and not again
    assert not [p for p in cache.iterdir() if p.name.startswith(".build")]


def test_what_a_killed_build_left_is_removed_by_the_next(order, tmp_path):
    path = build(order, tmp_path / "cache")
    path.unlink()
    abandoned = path.parent / f".build-{path.stem}-gone"
    abandoned.mkdir()
    (abandoned / "seven.cpp.o").touch()
    other = path.parent / ".build-eight-in_progress"
    other.mkdir()
    build(order, path.parent)
    assert [p for p in path.parent.iterdir() if p.name.startswith(".build")] == [other]


def test_the_key_changes_with_everything_that_matters(order):
    compiler = find_compiler("some")
    keys = [cache_key(order.sources, order.flags, compiler)]
    keys.append(cache_key(order.sources, ("-O2",), compiler))
    keys.append(cache_key(order.sources, order.flags, replace(compiler, version="another")))
    header = order.sources[0].with_name("seven.h")
    header.write_text("#define SEVEN 8\n")
    keys.append(cache_key(order.sources, order.flags, compiler))
    order.sources[0].write_text(SOURCE + "// changed\n")
    keys.append(cache_key(order.sources, order.flags, compiler))
    assert len(set(keys)) == len(keys)


def test_two_processes_build_once(order, tmp_path):
    code = (
        "import sys, pathlib; from anychip.contract.compile import *; "
        "o = BuildOrder('some', 'seven', (pathlib.Path(sys.argv[1]),), ('-O1',)); "
        "n = []; compile_library(o, cache_dir=pathlib.Path(sys.argv[2]), progress=n.append); "
        "print(len(n))"
    )
    command = [sys.executable, "-c", code, str(order.sources[0]), str(tmp_path / "cache")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(int(c.communicate(timeout=120)[0]) for c in children)
    assert said[:2] == [0, 0] and said[2] > 0


def test_a_broken_source_shows_what_the_compiler_said(order, tmp_path):
    order.sources[0].write_text("int f( {\n")
    with pytest.raises(ChipError, match=r"seven\.cpp.*error") as caught:
        build(order, tmp_path / "cache")
    assert caught.value.fact.layer is ChipLayer.BUILD
    assert not list((tmp_path / "cache").glob("*.so"))


def test_no_compiler_is_typed(order, tmp_path):
    with pytest.raises(NoCompiler, match="looked for no-such-compiler"):
        build(order, tmp_path / "cache", compiler="no-such-compiler")


def test_a_folder_that_cannot_be_made_is_named(order, tmp_path):
    (tmp_path / "file").write_text("")
    told = r"build folder .*file.* is not writable .*another with --build-dir or --cache-dir"
    with pytest.raises(ChipError, match=told) as caught:
        build(order, tmp_path / "file" / "cache")
    assert caught.value.fact.kind is ErrorKind.INVALID


def test_a_folder_that_others_may_write_to_is_refused(order, tmp_path):
    cache = tmp_path / "shared"
    cache.mkdir()
    os.chmod(cache, 0o777)
    with pytest.raises(ChipError, match=r"others may write to it.*--build-dir"):
        build(order, cache)


@pytest.mark.parametrize("damage", ["cut", "changed", "no digest", "empty digest"])
def test_a_damaged_library_is_built_again_and_told(order, tmp_path, damage):
    cache, lines = tmp_path / "cache", []
    path = build(order, cache)
    digest, whole = path.with_name(path.name + ".sha256"), path.read_bytes()
    assert digest.read_text() == f"{sha256(whole).hexdigest()}  {path.name}\n"
    if "digest" in damage:
        digest.write_text("")
        if damage == "no digest":
            digest.unlink()
    else:
        path.write_bytes(whole[:2000] if damage == "cut" else whole[:-1] + b"~")
    assert not is_intact(path)
    assert build(order, cache, lines) == path and is_intact(path)
    assert "is damaged" in lines[0] and ctypes.CDLL(str(path)).seven() == 7


def test_a_compiler_that_cannot_run_is_not_the_folders_fault(order, tmp_path):
    compiler = tmp_path / "vanishing"
    compiler.write_text('#!/bin/sh\nrm "$0"\necho one 1.0\n')
    compiler.chmod(0o700)
    with pytest.raises(ChipError, match="vanishing cannot be run: No such file"):
        build(order, tmp_path / "cache", compiler=str(compiler))


def editing_compiler(folder, seven, times):
    """A compiler beside which the header is edited, behind its first `times` calls for an object:
    it has 8, 9 ... for seven from then on."""
    script = folder / "editing"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *" -c "*)
    done=$(cat {folder}/done 2>/dev/null || echo 0)
    {find_compiler("some").path} "$@"; status=$?
    if [ "$done" -lt {times} ]; then
        echo $((done + 1)) > {folder}/done
        echo "#define SEVEN $((done + 8))" > {seven}
    fi
    exit $status;;
esac
exec {find_compiler("some").path} "$@"
"""
    )
    script.chmod(0o700)
    return str(script)


def test_sources_that_change_while_they_are_compiled_are_compiled_again(order, tmp_path):
    seven, cache, lines = order.sources[0].with_name("seven.h"), tmp_path / "cache", []
    compiler = editing_compiler(tmp_path, seven, 1)
    path = build(order, cache, lines, compiler)
    assert ctypes.CDLL(str(path)).seven() == 8
    assert list(cache.glob("*.so")) == [path] and is_intact(path)
    assert sum("changed while they were compiled" in line for line in lines) == 1
    seven.write_text("#define SEVEN 7\n")
    assert ctypes.CDLL(str(build(order, cache, compiler=compiler))).seven() == 7


def test_an_error_of_sources_that_changed_meanwhile_is_not_the_last_word(order, tmp_path):
    seven = order.sources[0].with_name("seven.h")
    seven.write_text("#define EIGHT 8\n")
    path = build(order, tmp_path / "cache", compiler=editing_compiler(tmp_path, seven, 1))
    assert ctypes.CDLL(str(path)).seven() == 8


def test_sources_that_never_rest_are_an_error_with_their_folder(order, tmp_path):
    seven = order.sources[0].with_name("seven.h")
    told = rf"sources in {seven.parent} changed in each of {TURNS} turns .*start again"
    with pytest.raises(ChipError, match=told):
        build(order, tmp_path / "cache", compiler=editing_compiler(tmp_path, seven, 99))
    assert not list((tmp_path / "cache").glob("*.so"))
