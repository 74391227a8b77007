"""Where the SDK is looked for, and what is said of a place that was named in vain."""

import shutil
from pathlib import Path

import pytest
from kunlun_small import CORE, bad, linked_tree, options, small_shim

from anychip.chips.kunlun import build
from anychip.chips.kunlun.build import KunlunBuild, find_sdk
from anychip.contract.build import Verdict
from anychip.contract.compile import left_out
from anychip.contract.errors import ChipError, ErrorKind

LIBRARIES = {
    *("xpurt", "xpuml", "xpuapi", "xpu_blas"),
    *("xpu_flash_attention", "apiinfer", "xft_blocks", "bkcl"),
}


@pytest.fixture
def tree(sdk, tmp_path) -> Path:
    """A tree of links, in a folder with a space and a comma's neighbour."""
    return linked_tree(sdk.root, tmp_path / "the SDK")


@pytest.fixture
def nowhere(monkeypatch, tmp_path) -> Path:
    """No usual place has anything; gives the home folder."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    places = build.PLACES.replace("/usr/local", f"{tmp_path}/usr/local")
    monkeypatch.setattr(build, "PLACES", places)
    return home


def test_a_root_leads_to_the_runtime_beside_it(tree):
    found = find_sdk(options(tree / "sdk"))
    assert set(found.libraries) == LIBRARIES
    assert found.libraries["xpurt"] == tree / "runtime/lib/libxpurt.so"
    assert found.include_dirs[0] == tree / "sdk/include"
    assert found.simulated
    assert found.where == f"sdk_root={tree}/sdk (option or variable)"
    order = [path.name.partition(".")[0] for path in found.load_order]
    assert order.index("libxpurt") < order.index("libxpuapi") < order.index("libxft_blocks")


def test_the_runtime_named_is_the_runtime_taken(tree, tmp_path):
    other = tmp_path / "other runtime"
    other.mkdir()
    shutil.copy(tree / "runtime/lib/libxpurt.so", other / "libxpurt.so.2")
    found = find_sdk(options(tree / "sdk", runtime_lib=str(other)))
    assert found.libraries["xpurt"] == other / "libxpurt.so.2"
    assert found.libraries["xpuml"] == tree / "runtime/lib/libxpuml.so"
    assert found.where.endswith(f"runtime_lib={other} (option or variable)")


def test_usual_places_are_looked_at_in_order_and_told(tree, nowhere, tmp_path):
    simulated = nowhere / ".cache/anychip/sim/kunlun"
    simulated.parent.mkdir(parents=True)
    simulated.symlink_to(tree)
    assert find_sdk(options()).where == f"usual place {simulated}"
    assert find_sdk(options()).libraries["xpuapi"] == simulated / "sdk/lib/libxpuapi.so"
    installed = tmp_path / "usr/local/xpu"
    linked_tree(tree / "runtime", installed)
    linked_tree(tree / "sdk", tmp_path / "usr/local/xhpc")
    found = find_sdk(options())
    assert found.where == f"usual place {installed}"
    assert found.libraries["xpurt"] == installed / "lib/libxpurt.so"
    assert found.libraries["xpuapi"] == tmp_path / "usr/local/xhpc/lib/libxpuapi.so"
    assert tmp_path / "usr/local/xhpc/include" in found.include_dirs


def test_a_home_with_a_folder_a_part_is_found(tree, tmp_path):
    home = tmp_path / "KUNLUN_HOME"
    linked_tree(tree / "runtime/lib", home / "xre/so")
    linked_tree(tree / "sdk/include", home / "xre/include")
    linked_tree(tree / "sdk/lib", home / "xhpc/xdnn/so")
    found = find_sdk(options(home))
    assert set(found.libraries) == LIBRARIES
    assert home / "xre/include" in found.include_dirs


def test_folders_alone_are_enough(tree):
    dirs = f"{tree}/sdk/lib,{tree}/runtime/lib"
    found = find_sdk(options(library_dirs=dirs, include_dirs=f"{tree}/sdk/include"))
    assert found.root is None and set(found.libraries) == LIBRARIES
    headers = tree / "sdk/include"
    assert found.include_dirs[0] == headers and headers / "xhpc/xblas" in found.include_dirs
    assert set(found.include_dirs) == set(find_sdk(options(tree / "sdk")).include_dirs)
    assert len(found.library_dirs) == 2


def test_a_folder_of_headers_that_is_named_leaves_no_guess_out(tree, tmp_path, monkeypatch):
    """The guesses' headers lie in folders of their own below it."""
    small_shim(monkeypatch, tmp_path, core=CORE, guess_ops='#include "infer_ops.h"\n')
    dirs = {"library_dirs": f"{tree}/sdk/lib,{tree}/runtime/lib", "build_dir": str(tmp_path)}
    layer = KunlunBuild(options(include_dirs=f"{tree}/sdk/include", **dirs))
    assert not left_out(Path(layer.compile()))
    (tree / "sdk/include/xft/infer_ops.h").unlink()
    told = [f for f in layer.check() if f.name == "infer_ops.h"]
    assert [f.verdict for f in told] == [Verdict.UNKNOWN] and "package XVLLM" in told[0].text
    assert set(left_out(Path(layer.compile()))) == {"guess_ops.cpp"}
    (told,) = [f for f in layer.check() if "guess_ops.cpp is left out" in f.text]
    assert told.step.startswith("for infer_ops.h: ") and "--include-dirs" in told.step


@pytest.mark.parametrize("beside", ["nowhere", "empty"])
def test_a_place_that_was_named_is_never_passed_over(tree, tmp_path, beside):
    """Everything lies elsewhere, also beside what was named."""
    (tree / "empty").mkdir()
    place = tree / beside
    for key, name, words in (
        ("runtime_lib", "libxpurt.so", f"KUNLUN_RUNTIME_LIB={place} holds no libxpurt.so"),
        ("sdk_root", "SDK", f"KUNLUN_SDK_ROOT={place} holds no library of the SDK"),
        ("include_dirs", "include_dirs", f"include_dirs={place} holds no header"),
        ("library_dirs", "library_dirs", f"library_dirs={place} holds no library"),
    ):
        layer = KunlunBuild(options(tree / "sdk") | {key: str(place)})
        (told,) = layer.check()
        assert (told.name, told.verdict) == (name, Verdict.BAD)
        assert told.text.startswith(words) and told.step
        with pytest.raises(ChipError) as caught:
            layer.compile()
        assert words in str(caught.value)


def test_what_is_named_is_never_replaced_by_a_usual_place(tree, nowhere):
    simulated = nowhere / ".cache/anychip/sim/kunlun"
    simulated.parent.mkdir(parents=True)
    simulated.symlink_to(tree)
    found = find_sdk(options(nowhere))
    assert not found.libraries and not found.simulated
    red = bad(KunlunBuild(options(nowhere)).check())
    assert f"KUNLUN_SDK_ROOT={nowhere} holds no library of the SDK" in red["SDK"].text
    assert "set KUNLUN_SDK_ROOT (or the option sdk_root)" in red["SDK"].step


def test_nothing_anywhere_is_told_with_the_places(nowhere):
    layer = KunlunBuild(options())
    (found,) = layer.check()
    assert found.verdict is Verdict.BAD and build.PLACES in found.text
    assert "KUNLUN_SDK_ROOT" in found.step and "KUNLUN_RUNTIME_LIB" in found.step
    with pytest.raises(ChipError, match="no library of the SDK was found") as caught:
        layer.compile()
    assert caught.value.fact.kind is ErrorKind.UNSUPPORTED
    assert layer.environment() == {}
