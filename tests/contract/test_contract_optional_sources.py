"""Optional sources of a build order, and what its key follows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anychip.contract.build import Verdict
from anychip.contract.compile import (
    BuildOrder,
    cached_library,
    compile_library,
    find_compiler,
    left_out,
    link_arguments,
)
from anychip.contract.compile_look import look
from anychip.contract.errors import ChipError
from anychip.contract.loader import load

GXX = shutil.which("g++")
needs_compiler = pytest.mark.skipif(GXX is None, reason="needs a compiler")


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def order_of(folder: Path, required: str, optional: dict[str, str], **more) -> BuildOrder:
    core = written(folder / "core.cpp", required)
    guesses = tuple(written(folder / f"{n}.cpp", text) for n, text in optional.items())
    return BuildOrder("some", "parts", (core,), ("-O1",), optional=guesses, **more)


def compiled(order: BuildOrder, cache: Path) -> tuple[Path, list[str]]:
    said: list[str] = []
    return compile_library(order, cache_dir=cache, progress=said.append), said


@needs_compiler
def test_optional_sources_that_do_not_fit_are_left_out_and_told(tmp_path):
    optional = {
        "fits": 'extern "C" int fits() { return 3; }',
        "broken": "int broken( {",
        "unlinked": 'int nowhere(int); extern "C" int unlinked() { return nowhere(1); }',
    }
    order = order_of(
        tmp_path, 'extern "C" int core() { return 2; }', optional, link=link_arguments([])
    )
    path, said = compiled(order, tmp_path / "cache")
    out = left_out(path)
    assert set(out) == {"broken.cpp", "unlinked.cpp"}
    assert out["broken.cpp"].startswith("error: ") and "nowhere(int)" in out["unlinked.cpp"]
    assert any(line.startswith("left out of parts: broken.cpp: error:") for line in said)
    library = load(str(path))
    assert (library.core(), library.fits()) == (2, 3) and not hasattr(library, "unlinked")
    assert compiled(order, tmp_path / "cache") == (path, [])
    names = [(f.name, f.verdict) for f in look(order, cache_dir=tmp_path / "cache")]
    assert names[:2] == [("C++ compiler", Verdict.GOOD), ("kernels", Verdict.GOOD)]
    assert names[2:] == [("kernels", Verdict.UNKNOWN)] * 2


@needs_compiler
def test_what_to_do_about_one_that_is_left_out(tmp_path):
    optional = {"broken": "int broken( {", "lacking": '#include "gone/parts.h"\n'}
    order = order_of(tmp_path, "int core();", optional, way_out="name its folder")
    compiled(order, tmp_path / "cache")
    steps = {f.step for f in look(order, cache_dir=tmp_path / "cache") if "left out" in f.text}
    assert steps == {
        "for broken.cpp: name its folder; or go without broken.cpp",
        "for gone/parts.h: name its folder; or go without lacking.cpp",
    }
    order = order_of(tmp_path, "int core();", optional)
    steps = {f.step for f in look(order, cache_dir=tmp_path / "cache") if "left out" in f.text}
    assert "mend broken.cpp; or go without broken.cpp" in steps


@needs_compiler
def test_a_fault_of_the_others_is_no_fault_of_an_optional_source(tmp_path):
    text = "int nowhere(int); int core() { return nowhere(1); }"
    order = order_of(tmp_path, text, {"fits": "int fits();"}, link=link_arguments([]))
    with pytest.raises(ChipError, match="undefined reference to `_Z7nowherei'"):
        compiled(order, tmp_path / "cache")
    order = order_of(tmp_path, "int core( {", {"fits": "int fits();"})
    with pytest.raises(ChipError, match=r"core\.cpp:1:\d+: error"):
        compiled(order, tmp_path / "cache")


@needs_compiler
def test_what_the_order_depends_on_is_in_the_key(tmp_path):
    compiler = find_compiler("some")
    orders = [
        order_of(tmp_path, "int core();", {}),
        order_of(tmp_path, "int core();", {}, depends=("SDK 1",)),
        order_of(tmp_path, "int core();", {}, depends=("SDK 2",)),
        order_of(tmp_path, "int core();", {}, link=("-lm",)),
        order_of(tmp_path, "int core();", {"guess": "int guess();"}),
    ]
    paths = {cached_library(o, cache_dir=tmp_path, compiler=compiler) for o in orders}
    assert len(paths) == len(orders)
