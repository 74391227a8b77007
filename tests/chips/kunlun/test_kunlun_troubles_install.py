"""What goes wrong before a card is touched: the doctor names library, symbol, package, versions.

Rows of the field: an undefined symbol on import, an initialization that fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kunlun_looked import GREEN, RED, YELLOW, ended, examined
from kunlun_small import linked_tree
from sim_trees import SimTree, shared_tree, with_accounts

import tiny_models

OLD_RUNTIME = ("--profile", "r200")
GOOD_VERSIONS = "install versions that go together, recorded as good: "


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def tree_of(folder: Path, *flags: str) -> SimTree:
    return with_accounts(shared_tree(*flags), folder)


def test_a_sound_tree_has_nothing_red_and_says_whence_each_version_is(sdk):
    looked = examined(sdk)
    looked.assert_sound()
    loaded, _ = looked.only(GREEN, "libraries")
    assert all(f"lib{name}.so" in loaded for name in ("xpurt", "xpuapi", "apiinfer", "bkcl"))
    origins, _ = looked.only(GREEN, "origins")
    assert "driver 5.0.21.21 (xpumlSystemGetDriverVersion)" in origins
    assert f"XRE 5.0.21.19 ({sdk.root}/runtime/version)" in origins
    assert "XPU-RT 5.2.0" in origins and "xpu_smi -q" in origins
    assert "[simulated SDK]" in origins
    memory, _ = looked.only(GREEN, "memory")
    assert memory.startswith("total 98,304 MiB") and memory.endswith("(XPUML)")  # not the host's
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert pages != 98_304 << 20


def test_a_runtime_folder_that_is_not_known(sdk, tmp_path):
    """The usual cause of an undefined symbol: XRE lies elsewhere, and nobody says where."""
    alone = SimTree(tmp_path, sdk.state)
    linked_tree(sdk.root / "sdk", tmp_path / "sdk")
    looked = examined(alone, KUNLUN_RUNTIME_LIB="")
    assert (looked.code, looked.red) == (1, {"libxpurt.so.2", "libxpuml.so"})
    needed, _ = looked.only(RED, "libxpurt.so.2")
    assert "libxpurt.so.2 (package XRE) was not found; it is needed by " in needed
    assert f"{tmp_path}/sdk/lib/libxpuapi.so" in needed
    asked, _ = looked.only(RED, "libxpuml.so")
    assert f"libxpuml.so (package XRE) was not found; looked in {tmp_path}/sdk/lib" in asked
    for line in looked.lines(RED):
        way_out = "install XRE, or set KUNLUN_RUNTIME_LIB to the folder that has "
        assert line["step"] == way_out + line["name"]


def test_a_runtime_folder_that_has_nothing(sdk, tmp_path):
    """Another runtime is there, beside the SDK; it was not the one that was asked for."""
    looked = examined(sdk, KUNLUN_RUNTIME_LIB=str(tmp_path))
    assert (looked.code, looked.red) == (1, {"libxpurt.so"})
    text, step = looked.only(RED, "libxpurt.so")
    assert text.startswith(f"KUNLUN_RUNTIME_LIB={tmp_path} holds no libxpurt.so")
    assert step.startswith("set KUNLUN_RUNTIME_LIB ") and "to the folder that has it" in step


def test_a_symbol_that_the_runtime_lacks(tmp_path):
    tree = tree_of(tmp_path, "--fault", "missing-symbol=xpu_stream_create")
    looked = examined(tree)
    assert (looked.code, looked.red) == (1, {"the chip"})
    text, step = looked.only(RED, "the chip")
    assert text.startswith("undefined symbol: xpu_stream_create, wanted by the chip; ")
    assert f"{tree.root}/runtime/lib/libxpurt.so (package XRE (simulated)) should have it" in text
    assert "or set KUNLUN_RUNTIME_LIB to where it is" in step
    assert not [f for f in looked.found if f["name"] == "probe"]  # no card was touched


def test_a_function_that_only_a_guess_needs_leaves_that_guess_out(tmp_path, tiny_folder):
    function = "baidu::xpu::api::rotary_embedding_half"
    tree = tree_of(tmp_path, "--fault", f"missing-symbol={function}")
    told = ended(tree, "coverage", "--model-path", str(tiny_folder))
    assert told.returncode == 0 and "rotary_embedding │ composed" in told.stdout, told.stdout
    looked = examined(tree)
    text, step = looked.only(YELLOW, "kernels")
    assert text.startswith("guess_rotary.cpp is left out, what is in it will be missing: ")
    assert function in text and "guess_rotary.cpp" in step
    looked.assert_sound()


def test_a_function_that_every_model_needs(tmp_path):
    function = "baidu::xpu::api::rms_layer_norm"
    tree = tree_of(tmp_path, "--fault", f"missing-symbol={function}")
    looked = examined(tree)
    assert (looked.code, looked.red) == (1, {"kernels"})
    text, step = looked.only(RED, "kernels")
    assert f"{function}<bfloat16, float>(baidu::xpu::api::Context*" in text
    assert "libxpuapi.so (package XHPC (simulated)) should have it" in text
    assert "or set KUNLUN_SDK_ROOT to where it is" in text
    assert step == "anychip build kunlun"
    assert not [f for f in looked.found if "device" in f["name"]]  # no card is accused


def test_the_variable_leads_to_an_older_runtime(sdk):
    """The operator libraries need the newer one, and get it from beside the SDK: two in one."""
    old = shared_tree(*OLD_RUNTIME) / "runtime" / "lib"
    looked = examined(sdk, KUNLUN_RUNTIME_LIB=str(old))
    assert (looked.code, looked.red) == (1, {"libxpurt"})
    text, step = looked.only(RED, "libxpurt")
    assert "loaded from two files: " in text and "KUNLUN_RUNTIME_LIB" in text
    assert f"{old}/libxpurt.so.1" in text and f"{sdk.root}/runtime/lib/libxpurt.so.2" in text
    assert step == "set KUNLUN_RUNTIME_LIB to one of them"
    twice, step = looked.only(YELLOW, "libxpuml.so")
    assert f"{old}/libxpuml.so is taken (package XRE (simulated)); the search also" in twice
    assert "KUNLUN_RUNTIME_LIB" in step


def test_the_shells_path_leads_to_another_runtime(sdk):
    old = shared_tree(*OLD_RUNTIME) / "runtime" / "lib"
    looked = examined(sdk, LD_LIBRARY_PATH=str(old))
    looked.assert_sound()
    for name in ("libxpurt.so", "libxpuml.so"):
        text, step = looked.only(YELLOW, name)
        assert f"{sdk.root}/runtime/lib/{name} is taken" in text
        assert f"LD_LIBRARY_PATH also leads to another, {old}/{name}" in text
        assert step == f"keep one: take {old} out of LD_LIBRARY_PATH"


def test_a_driver_that_is_known_not_to_go_with_the_sdk(tmp_path):
    looked = examined(tree_of(tmp_path, "--driver", "4.33.0"))
    assert (looked.code, looked.red) == (1, {"version matrix"})
    first, calls = looked.lines(RED)
    assert first["text"].startswith("driver 4.33.0.0, XRE 5.0.21.19: do not go together, ")
    assert "PaddlePaddle/Paddle #73315" in first["text"]
    assert "driver 5.0.21.47, XPU-RT 10.2, XRE 5.13.0.0" in first["step"]
    assert calls["text"].startswith("driver call 4.33, runtime call 5.0: do not go together, ")
    assert first["step"].startswith(GOOD_VERSIONS) and first["step"] == calls["step"]


def test_a_driver_that_the_runtime_refuses(tmp_path):
    looked = examined(tree_of(tmp_path, "--driver", "5.0.9.1"))
    assert (looked.code, looked.red) == (1, {"probe"})
    text, step = looked.only(RED, "probe")
    assert "XRE 704 (VERSION)" in text
    assert "runtime and driver do not go together (driver 5.0.9.1, runtime 5.0)" in text
    assert "recorded as good: driver 5.0.21.47" in step
    assert "driver 5.0.21.21" not in step  # another row doubts it


def test_no_driver_and_a_tool_that_prints_nothing(tmp_path):
    looked = examined(tree_of(tmp_path, "--fault", "no-driver"))
    assert (looked.code, looked.red) == (1, {"probe"})
    text, step = looked.only(RED, "probe")
    assert step.startswith("install the vendor's kernel driver, or load it")
    assert "no driver: xpumlInit: XPUML 9 (DRIVER_NOT_LOADED)" in text
    assert "the PCI bus has 0 devices of vendor 0x1d22" in text
    origins, step = looked.only(YELLOW, "origins")
    assert "xpu_smi -q printed none" in origins and "driver not told" in origins
    assert "look at the driver" in step


def test_another_vendors_tool_of_that_name(tmp_path):
    tree = tree_of(tmp_path, "--fault", "no-driver", "--fault", "foreign-smi")
    looked = examined(tree, PATH=f"{tree.root}/bin:{os.environ['PATH']}")
    text, _ = looked.only(RED, "probe")
    assert "no driver: " in text
    assert f"{tree.root}/bin/xpu-smi is another vendor's tool, or broken: " in text


def test_cards_are_asked_through_the_library_whatever_the_tool_is(sdk):
    foreign = shared_tree("--fault", "foreign-smi") / "bin"
    examined(sdk, PATH=f"{foreign}:{os.environ['PATH']}").assert_sound()


@pytest.mark.parametrize("words", [("generate", "--prompt", "hello"), ("coverage",)])
def test_no_other_chip_is_taken_instead(words, tmp_path, tiny_folder):
    tree = tree_of(tmp_path, "--fault", "no-driver")
    done = ended(tree, *words, "--model-path", str(tiny_folder))
    assert done.returncode == 1 and not done.stdout
    assert "kunlun" in done.stderr and "DRIVER_NOT_LOADED" in done.stderr
    assert "cpu" not in done.stderr
