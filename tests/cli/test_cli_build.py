"""`anychip build CHIP` and `anychip env CHIP`: what is compiled, kept, told and exported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anychip.__main__ import main
from anychip.chips.cpu import build_isa
from anychip.contract.errors import ChipError, ContractError
from anychip.contract.registration import read_options
from anychip.run.plan_run import chip_options
from anychip.settings import ServeConfig

TESTS = Path(__file__).parents[1]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch) -> None:
    for name in ("KUNLUN_SDK_ROOT", "KUNLUN_RUNTIME_LIB", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The chip with a shim of a few lines."""
    monkeypatch.syspath_prepend(str(TESTS / "chips" / "kunlun"))
    import kunlun_small

    return kunlun_small.small_shim(monkeypatch, tmp_path)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The simulated SDK, as the chip's own tests use it."""
    sys.path.append(str(TESTS / "simulators" / "kunlun"))
    from sim_trees import shared_tree

    return shared_tree("--devices", "3")


@pytest.fixture
def sdk(shared, tmp_path, small) -> Path:
    """A tree of links in a folder with a space and a quote."""
    import kunlun_small

    return kunlun_small.linked_tree(shared, tmp_path / "the user's SDK")


def run(capsys, *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def config_of(folder: Path, **options: str) -> ServeConfig:
    return ServeConfig(backend="kunlun", chip_option=options, build_dir=str(folder))


def test_a_chip_with_nothing_to_compile_says_so(capsys, tmp_path):
    code, out, _ = run(capsys, "build", "fake", "--build-dir", tmp_path)
    assert code == 0 and "nothing to compile" in out
    assert not list(tmp_path.iterdir())
    code, out, _ = run(capsys, "env", "fake")
    assert code == 0 and out == "# fake: nothing is needed in the environment\n"
    assert run(capsys, "env", "fake", "--json")[1] == "{}\n"


@needs_compiler
def test_a_chip_without_a_toolchain_is_opened_and_built(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(build_isa, "FLAGS", (*build_isa.FLAGS, "-O0"))  # soon compiled
    words = ("build", "cpu", "--build-dir", tmp_path, "--chip-option", "isa=portable")
    code, out, _ = run(capsys, *words)
    assert code == 0, out
    assert "isa=portable (as typed)" in out
    (library,) = tmp_path.glob("anychip_cpu_portable-*.so")
    assert str(library) in out.replace("\n│        │                  │ ", " ")


def test_what_cannot_be_obeyed_is_refused_by_name(capsys, tmp_path):
    code, _, err = run(capsys, "build", "nope")
    assert code == 2 and "no chip 'nope' is installed" in err
    code, _, err = run(capsys, "build")
    assert code == 2 and "CHIP" in err
    code, _, err = run(capsys, "env", "fake", "--define", "X=1")
    assert code == 2 and "--define" in err
    code, _, err = run(capsys, "build", "fake", "--library-dirs", tmp_path)
    assert code == 2 and "--library-dirs: chip 'fake' has no option 'library_dirs'" in err
    code, _, err = run(capsys, "build", "kunlun", "--define", "X")
    assert code == 2 and "'X' is not NAME=VALUE" in err
    words = ("build", "kunlun", "--define", "X=1", "--chip-option", "define=Y=2")
    code, _, err = run(capsys, *words)
    assert code == 2 and "--define: --chip-option define=Y=2 is given too" in err


@needs_compiler
def test_build_compiles_tells_and_keeps_its_options(capsys, sdk, tmp_path, monkeypatch):
    folder = tmp_path / "built"
    monkeypatch.chdir(sdk)  # relative folders are right from everywhere afterwards
    given = ("--build-dir", folder, "--chip-option", "sdk_root=./sdk", "--define", "SOME=1")
    code, out, err = run(capsys, "build", "kunlun", *given, "--include-dirs", "sdk/include/xpu")
    assert code == 0, out
    assert f"sdk_root={sdk}/sdk (as typed)" in out
    assert "[simulated SDK]" in out
    kept = json.loads((folder / "kunlun.json").read_text())
    assert kept == {
        "sdk_root": f"{sdk}/sdk",
        "define": "SOME=1",
        "include_dirs": f"{sdk}/sdk/include/xpu",
    }
    options = chip_options(config_of(folder))
    assert options == kept | {"build_dir": str(folder)}
    code, out, err = run(capsys, "build", "kunlun", "--build-dir", folder)
    assert code == 0 and "compiling" not in err
    assert f"define=SOME=1 (kept in {folder}/kunlun.json)" in out
    code, out, _ = run(capsys, "build", "kunlun", "--build-dir", folder, "--forget")
    assert code == 0 and out == f"{folder}/kunlun.json: dropped\n"
    assert chip_options(config_of(folder)) == {"build_dir": str(folder)}
    assert (
        "nothing was kept" in run(capsys, "build", "kunlun", "--build-dir", folder, "--forget")[1]
    )


def test_typed_options_and_variables_win_over_kept_ones(tmp_path, monkeypatch, caplog):
    from anychip.chips.kunlun.registration import KunlunChip
    from anychip.contract.remembered import remember

    caplog.set_level("INFO", "anychip.chip")
    path = remember("kunlun", tmp_path, {"sdk_root": "/kept", "define": "KEPT=1"})
    typed = chip_options(config_of(tmp_path, sdk_root="/typed"))
    assert (typed["sdk_root"], typed["define"]) == ("/typed", "KEPT=1")
    assert f"options that anychip build kept in {path}: define=KEPT=1" in caplog.messages
    monkeypatch.setenv("KUNLUN_SDK_ROOT", "/variable")
    options = chip_options(config_of(tmp_path))
    assert "sdk_root" not in options
    assert read_options(KunlunChip, options)["sdk_root"] == "/variable"


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "Expecting"), ("[1]", "it holds no options"), ('{"gone": "1"}', "no option 'gone'")],
)
def test_a_damaged_record_is_told_with_the_way_out(tmp_path, text, why, capsys):
    (tmp_path / "kunlun.json").write_text(text)
    with pytest.raises(ContractError) as caught:
        chip_options(config_of(tmp_path))
    assert why in str(caught.value) and "anychip build kunlun --forget" in str(caught.value)
    assert run(capsys, "build", "kunlun", "--build-dir", tmp_path, "--forget")[0] == 0
    assert chip_options(config_of(tmp_path))


def test_a_record_that_others_may_write_is_refused(tmp_path):
    (tmp_path / "kunlun.json").write_text('{"sdk_root": "/theirs"}')
    tmp_path.chmod(0o777)
    with pytest.raises(ChipError, match="others may write to it"):
        chip_options(config_of(tmp_path))


@needs_compiler
def test_options_of_a_build_that_fails_are_not_kept(capsys, sdk, small, tmp_path):
    import kunlun_small

    (small / "core.cpp").write_text(kunlun_small.NO_SYMBOL)
    folder = tmp_path / "built"
    given = ("--build-dir", folder, "--chip-option", f"sdk_root={sdk}/sdk")
    code, out, _ = run(capsys, "build", "kunlun", *given)
    text = " ".join(out.replace("│", " ").split())
    assert code == 1
    assert "red compile" in text and "of_another_version(int)" in text
    assert "package XHPC (simulated)) should have it" in text
    assert "green libraries" in text  # the rest is told all the same
    assert not (folder / "kunlun.json").exists()


def test_a_broken_sdk_is_told_in_red(capsys, sdk, tmp_path):
    (sdk / "sdk/lib/libapiinfer.so").unlink()
    given = ("--build-dir", tmp_path / "built", "--chip-option", f"sdk_root={sdk}/sdk")
    code, out, _ = run(capsys, "build", "kunlun", *given)
    text = " ".join(out.replace("│", " ").split())
    assert code == 1 and "red libapiinfer.so" in text and "package XVLLM" in text


def sourced(script: Path, command: str, **variables: str) -> str:
    """What a command prints in a bash that has read the script."""
    done = subprocess.run(
        ["bash", "-euc", f". {str(script)!r}; {command}"],
        env={"PATH": "/usr/bin:/bin"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_env_can_be_read_by_a_shell(capsys, sdk, tmp_path):
    given = ("--build-dir", tmp_path, "--chip-option", f"sdk_root={sdk}/sdk")
    code, out, err = run(capsys, "env", "kunlun", *given)
    assert code == 0 and not err
    assert f"# sdk_root={sdk}/sdk (as typed)" in out
    assert f"# libxpurt.so (XRE (simulated)): {sdk}/runtime/lib/libxpurt.so" in out
    script = tmp_path / "env.sh"
    script.write_text(out)
    assert sourced(script, 'echo "$KUNLUN_SDK_ROOT"') == f"{sdk}/sdk\n"
    library = "$KUNLUN_SDK_ROOT/lib/libxft_blocks.so"
    assert "not found" not in sourced(script, f'ldd -r "{library}"')
    assert "Driver" in sourced(script, "xpu_smi")
    front = f"{sdk}/runtime/lib:{sdk}/sdk/lib"
    assert sourced(script, 'echo "$LD_LIBRARY_PATH"') == f"{front}\n"
    behind = sourced(script, 'echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH="/mine")
    assert behind == f"{front}:/mine\n"
    values = json.loads(run(capsys, "env", "kunlun", *given, "--json")[1])
    assert values["LD_LIBRARY_PATH"] == front and values["KUNLUN_SDK_ROOT"] == f"{sdk}/sdk"


def test_env_without_an_sdk_exports_nothing_and_fails(capsys, tmp_path):
    given = ("--build-dir", tmp_path, "--chip-option", f"sdk_root={tmp_path}/a\nexport X=1")
    code, out, err = run(capsys, "env", "kunlun", *given)
    assert code == 1 and "no SDK of kunlun is found" in err
    assert all(line.startswith("# ") for line in out.splitlines())  # nothing that a shell would run
    assert "libxpurt.so (XRE): not found" in out
