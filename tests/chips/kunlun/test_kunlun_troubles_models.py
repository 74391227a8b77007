"""What goes wrong with a model on a sound card: weights that are misread, operators that are not
there. It is told before the model's weights are loaded, with operator, weight type and model."""

from __future__ import annotations

from pathlib import Path

import pytest
from kunlun_looked import GREEN, RED, ended, examined, settings_of
from kunlun_small import CORE, NO_SYMBOL, RAW, linked_tree, small_shim

import tiny_models
from anychip.__main__ import main

pytestmark = pytest.mark.usefixtures("compiled")
LOADED = "MiB of weights"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """Weights in float32, heads of 16."""
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def models(tmp_path_factory, plain) -> dict[str, Path]:
    """By what the file holds."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "bfloat16": tiny_models.make_hf_folder(folder / "halves", dtype="bfloat16"),
        "q8_0": tiny_models.make_gguf(folder, "q8_0"),
        "float32": plain,
    }


def test_a_sound_chip_agrees_with_the_oracle_at_the_models_shapes(sdk, models):
    looked = examined(sdk, "--model-path", str(models["q8_0"]), "--dtype", "bfloat16")
    looked.assert_sound()
    text, _ = looked.only(GREEN, "real shapes")
    assert "operators agree with the oracle" in text


@pytest.mark.parametrize(
    ("held", "computed", "fault", "cause"),
    [
        ("q8_0", "bfloat16", "float16", "'weight' is bfloat16, its bytes are read as float16"),
        ("q8_0", "float16", "bfloat16", "'weight' is float16, its bytes are read as bfloat16"),
        ("bfloat16", "bfloat16", "float16", "'weight' is bfloat16, its bytes are read as float16"),
        ("float32", "float32", "max", "'weight' is 127 times what it should be: max is taken"),
    ],
)
def test_weights_that_are_read_as_another_type(sdk, models, held, computed, fault, cause):
    words = ("--model-path", str(models[held]), "--dtype", computed)
    looked = examined(sdk, *words, XPUSIM_FAULTS=f"weight_as={fault}")
    assert (looked.code, looked.red) == (1, {"operator linear", "operator lm_head"})
    for operator in ("linear", "lm_head"):
        text, step = looked.only(RED, f"operator {operator}")
        assert f"{operator} diverges from the oracle" in text
        assert f"; it looks as if {cause}" in text
        assert "anychip conform --backend kunlun" in step and "--level operators" in step
    text, _ = looked.only(GREEN, "real shapes")  # the others are right
    assert "operators agree with the oracle" in text


def test_an_implementation_that_declines_the_model_is_told_with_its_reason(sdk, plain):
    chosen = ("--model-path", str(plain), "--op", "paged_attention=kunlun.paged_attention")
    covered = ended(sdk, "coverage", *chosen)
    assert covered.returncode == 1
    assert f"kunlun lacks paged_attention for {plain}" in covered.stderr
    why = "--op chose kunlun.paged_attention, which declines: heads of 16"
    assert why in covered.stdout
    generated = ended(sdk, "generate", *chosen, "--prompt", "hello")
    assert generated.returncode == 1 and not generated.stdout
    said = generated.stderr
    assert f"chip 'kunlun' cannot serve {plain}: it needs paged_attention." in said and why in said
    assert LOADED not in said
    looked = examined(sdk, *chosen)
    text, _ = looked.only(RED, "operator paged_attention")
    assert why in text and "operator paged_attention" in looked.red


def test_weights_are_loaded_where_nothing_is_missing(sdk, plain):
    """What the test above looks for in vain."""
    done = ended(
        sdk, "generate", "--model-path", str(plain), "--prompt", "hello", "--max-tokens", "2"
    )
    assert done.returncode == 0, done.stderr
    assert LOADED in done.stderr


def test_a_model_with_a_setting_that_is_not_served(sdk, tmp_path):
    folder = settings_of(tiny_models.make_hf_folder(tmp_path / "windowed"), sliding_window=64)
    covered = ended(sdk, "coverage", "--model-path", str(folder))
    told = f"{folder}/config.json: 'sliding_window' = 64 is not supported"
    assert covered.returncode == 1 and told in covered.stderr
    text, _ = examined(sdk, "--model-path", str(folder)).only(RED, "model")
    assert text == told


def test_a_function_that_the_sdk_lacks(sdk, tmp_path, monkeypatch, capsys, plain):
    """Sources of a few lines in place of the chip's; the linker fails, nothing is loaded here."""
    tree = linked_tree(sdk.root, tmp_path / "sdk")
    small_shim(monkeypatch, tmp_path, core=CORE, lacking=NO_SYMBOL)
    monkeypatch.setenv("KUNLUN_SDK_ROOT", str(tree / "sdk"))
    monkeypatch.delenv("KUNLUN_RUNTIME_LIB", raising=False)
    words = ["--backend", "kunlun", "--build-dir", str(tmp_path / "build")]
    assert main(["coverage", *words, "--model-path", str(plain)]) == 1
    said = capsys.readouterr()
    assert not said.out
    assert f"undefined symbol: baidu::xpu::api::of_another_version(int) ({RAW})" in said.err
    assert f"{tree}/sdk/lib/libxpuapi.so (package XHPC" in said.err
    assert "or set KUNLUN_SDK_ROOT" in said.err
