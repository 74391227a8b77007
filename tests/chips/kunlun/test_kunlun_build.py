"""What the build layer finds in an SDK, and the shim."""

import re
from pathlib import Path

import pytest
from kunlun_small import (
    CORE,
    NO_HEADER,
    NO_SYMBOL,
    RAW,
    bad,
    linked_tree,
    options,
    replaced,
    small_shim,
)
from sim_trees import shared_tree, with_accounts

from anychip.chips.kunlun import build
from anychip.chips.kunlun.build import KunlunBuild
from anychip.contract.build import Verdict
from anychip.contract.compile import left_out
from anychip.contract.errors import ChipError


@pytest.fixture
def tree(sdk, tmp_path) -> Path:
    """A tree of links, in a folder with a space and a comma's neighbour."""
    return linked_tree(sdk.root, tmp_path / "the SDK")


@pytest.fixture
def other_tree(monkeypatch, tmp_path):
    """Makes a tree of these flags, with accounts of its own; gives its root."""

    def make(*flags: str) -> Path:
        tree = with_accounts(shared_tree(*flags), tmp_path / "board")
        monkeypatch.setenv("XPUSIM_STATE", str(tree.state))
        return tree.root

    return make


def test_a_sound_tree_has_nothing_red_and_each_line_says_that_it_is_simulated(sdk, tmp_path):
    layer = KunlunBuild(options(sdk.root / "sdk", build_dir=str(tmp_path)))
    found = layer.check()
    assert not bad(found)
    assert all(f.text.endswith(" [simulated SDK]") for f in found)
    assert layer.check() == found
    told = {f.name: f for f in found}
    assert "libxft_blocks.so" in told["libraries"].text
    assert told["xpu/xdnn.h"].verdict is Verdict.GOOD
    assert told["kernels"].verdict is Verdict.UNKNOWN
    assert told["kernels"].step == "anychip build kunlun"


def test_guesses_in_use_are_counted_and_named(monkeypatch, tmp_path, sdk):
    kernels = small_shim(monkeypatch, tmp_path, core=CORE + "// calls in_use\n")
    head = (build.KERNELS / "abi_bkcl.tsv").read_text().splitlines()[0]
    for table in kernels.glob("abi_*.tsv"):
        table.unlink()
    cells = {"kind": "function", "library": "xpuapi"}
    lines = [head] + [
        "\t".join(
            (cells | {"name": name, "evidence": evidence}).get(c, "") for c in head.split("\t")
        )
        for name, evidence in (
            ("api::in_use", "guess"),
            ("xpu_of_no_use", "guess"),
            ("known", "header"),
        )
    ]
    (kernels / "operators.tsv").write_text("operator\tassumed\nlinear\tfloat\nexp\t\n")
    (kernels / "abi_some.tsv").write_text("\n".join(lines) + "\n")
    (told,) = [f for f in KunlunBuild(options(sdk.root)).check() if f.name == "assumed"]
    assert told.verdict is Verdict.UNKNOWN
    assert "assumed of the vendor's interface, 1 rows: api::in_use; of its" in told.text
    assert "semantics, 1 operators: linear " in told.text


def test_versions_are_told_with_their_origins(sdk, tree):
    layer = KunlunBuild(options(tree / "sdk"))
    versions = layer.versions()
    assert versions["SDK"] == "simulated"
    assert versions["XRE"].startswith(f"{versions['runtime call']}.")
    assert versions["driver"].startswith(f"{versions['driver call']}.")
    assert {"XHPC", "XVLLM", "XCCL", "XPU-RT", "XPUML", "compiler"} <= set(versions)
    (told,) = [f for f in layer.check() if f.name == "origins"]
    assert f"XRE {versions['XRE']} ({tree}/runtime/version)" in told.text
    assert f"runtime call {versions['runtime call']} (xpu_get_runtime_version)" in told.text
    assert f"XCCL {versions['XCCL']} ({tree}/sdk/xccl/version.txt)" in told.text
    assert f"({tree}/bin/xpu_smi -q)" in told.text
    (tree / "sdk/xccl/version.txt").unlink()
    layer = KunlunBuild(options(tree / "sdk"))
    assert "XCCL" not in layer.versions()
    (told,) = [f for f in layer.check() if f.name == "origins"]
    assert told.verdict is Verdict.UNKNOWN and "XCCL not told (no version file" in told.text


def fitting(layer: KunlunBuild) -> list[Verdict]:
    """Verdicts of the rows that are about the versions here, as the doctor takes them."""
    here = layer.versions()
    rows = [r for r in layer.matrix() if all(here.get(n) == v for n, v in r.versions.items())]
    return [row.verdict for row in rows]


def test_the_matrix_knows_good_and_bad_versions(tree):
    assert Verdict.GOOD in fitting(KunlunBuild(options(tree / "sdk")))
    assert Verdict.BAD not in fitting(KunlunBuild(options(tree / "sdk")))
    replaced(tree / "runtime/version", b"version:9.9.9.9\n")
    seen = KunlunBuild(options(tree / "sdk"))
    assert not [r for r in seen.matrix() if r.versions.get("XRE") == "9.9.9.9"]
    for row in KunlunBuild(options(tree / "sdk")).matrix():
        assert row.versions and row.source, row


def test_an_old_driver_under_a_new_runtime_is_red(other_tree):
    layer = KunlunBuild(options(other_tree("--driver", "4.33.0") / "sdk"))
    assert layer.versions()["driver"].startswith("4.33")
    assert Verdict.BAD in fitting(layer)


def test_a_missing_library_is_red_and_names_package_and_variable(tree):
    (tree / "sdk/lib/libapiinfer.so").unlink()
    red = bad(KunlunBuild(options(tree / "sdk")).check())
    assert set(red) == {"libapiinfer.so"}
    assert "package XVLLM" in red["libapiinfer.so"].text
    assert "set KUNLUN_SDK_ROOT to the folder that has libapiinfer.so" in red["libapiinfer.so"].step


def test_no_collectives_is_yellow(tree):
    (tree / "sdk/lib/libbkcl.so").unlink()
    layer = KunlunBuild(options(tree / "sdk"))
    found = {f.name: f for f in layer.check()}
    assert not bad(layer.check())
    assert found["libbkcl.so"].verdict is Verdict.UNKNOWN and "XCCL" in found["libbkcl.so"].step
    assert "libbkcl.so" not in {need.name for need in layer.requires()}


def test_an_undefined_symbol_leads_to_the_package_that_lacks_it(other_tree):
    root = other_tree("--fault", "missing-symbol=xpu_stream_create")
    red = bad(KunlunBuild(options(root / "sdk")).check())
    text = " ".join(f.text for f in red.values())
    assert "xpu_stream_create" in text, red
    assert "libxpurt.so (package XRE (simulated)) should have it" in text
    assert any("set KUNLUN_RUNTIME_LIB" in f.step for f in red.values())


def test_a_second_file_of_a_library_is_told(tree, tmp_path, monkeypatch):
    other = tmp_path / "torch_xmlir"
    other.mkdir()
    (other / "libbkcl.so").write_bytes((tree / "sdk/lib/libbkcl.so").read_bytes() + b"\0")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other))
    found = KunlunBuild(options(tree / "sdk")).check()
    (told,) = [f for f in found if f.name == "libbkcl.so"]
    assert told.verdict is Verdict.UNKNOWN and str(other / "libbkcl.so") in told.text
    assert told.step == f"keep one: take {other} out of LD_LIBRARY_PATH"


def test_a_second_file_in_the_sdk_itself_is_told(other_tree):
    root = other_tree("--fault", "duplicate-library=xpurt")
    found = KunlunBuild(options(root / "sdk", runtime_lib=str(root / "runtime/lib"))).check()
    assert not bad(found)
    (told,) = [f for f in found if f.name == "libxpurt.so" and f.verdict is Verdict.UNKNOWN]
    assert f"{root}/runtime/lib/libxpurt.so is taken" in told.text
    assert f"{root}/sdk/lib/libxpurt.so" in told.text
    assert "KUNLUN_RUNTIME_LIB, which decides" in told.step


def test_half_a_simulation_is_red(tree, tmp_path):
    real = linked_tree(tree / "runtime", tmp_path / "real" / "runtime")
    (real / "SIMULATED.txt").unlink()
    red = bad(KunlunBuild(options(tree / "sdk", runtime_lib=str(real / "lib"))).check())
    assert "a part is simulated, another is not" in red["SDK"].text


def test_a_header_that_is_not_there_is_red(tree):
    for folder in ("include/xpu", "include/xhpc/xpu"):
        (tree / "sdk" / folder / "xdnn.h").unlink(missing_ok=True)
    layer = KunlunBuild(options(tree / "sdk"))
    red = bad(layer.check())
    assert "header xpu/xdnn.h (package XHPC or XVLLM) was not found" in red["xpu/xdnn.h"].text
    assert "--include-dirs" in red["xpu/xdnn.h"].step
    (need,) = [n for n in layer.requires() if n.name == "xpu/xdnn.h"]
    assert need.header and not need.path


def test_the_environment_puts_both_folders_in_front(sdk):
    here = KunlunBuild(options(sdk.root)).environment()
    assert here["KUNLUN_SDK_ROOT"] == f"{sdk.root}/sdk"
    assert here["KUNLUN_RUNTIME_LIB"] == f"{sdk.root}/runtime/lib"
    folders = set(here["LD_LIBRARY_PATH"].split(":"))
    assert folders == {f"{sdk.root}/runtime/lib", f"{sdk.root}/sdk/lib"}
    assert here["PATH"] == f"{sdk.root}/bin"


def test_the_shim_is_built_once_and_loads(monkeypatch, tmp_path, tree, caplog):
    small_shim(monkeypatch, tmp_path)
    given = options(tree / "sdk", build_dir=str(tmp_path / "built here"))
    caplog.set_level("INFO", "anychip.chip")
    path = KunlunBuild(given).compile()
    assert any("compiled anychip_kunlun: core.cpp (" in line for line in caplog.messages)
    assert any(re.search(r"compiled .* \((\d+) of \1\)", line) for line in caplog.messages)
    caplog.clear()
    assert KunlunBuild(given).compile() == path
    assert not caplog.messages
    found = {f.name: f for f in KunlunBuild(given).check()}
    assert found["kernels"].text.startswith(path)
    assert Path(path).name in found["libraries"].text


def test_an_updated_sdk_builds_the_shim_again(monkeypatch, tmp_path, tree):
    small_shim(monkeypatch, tmp_path)
    given = options(tree / "sdk", build_dir=str(tmp_path / "built"))
    paths = [KunlunBuild(given).compile()]
    header, version = tree / "sdk/include/xpu/defs.h", tree / "runtime/version"
    replaced(header, header.read_bytes() + b"// newer\n")  # included by what is included
    paths.append(KunlunBuild(given).compile())
    replaced(version, b"version:5.0.99.0\n")
    paths.append(KunlunBuild(given).compile())
    library = tree / "sdk/lib/libxpuapi.so"
    replaced(library, library.read_bytes() + b"\0")
    paths.append(KunlunBuild(given).compile())
    paths.append(KunlunBuild(given | {"define": "SOME=1"}).compile())
    assert len(set(paths)) == len(paths)


def test_a_guess_that_does_not_fit_is_left_out_by_name(monkeypatch, tmp_path, tree):
    more = {
        "guess_header": NO_HEADER,
        "guess_symbol": NO_SYMBOL,
        "guess_good": "int good() { return 1; }",
    }
    small_shim(monkeypatch, tmp_path, core=CORE, **more)
    given = options(tree / "sdk", build_dir=str(tmp_path / "built"))
    path = KunlunBuild(given).compile()
    out = left_out(Path(path))
    assert set(out) == {"guess_header.cpp", "guess_symbol.cpp"}
    assert "xpu/of_another_version.h: No such file" in out["guess_header.cpp"]
    assert "baidu::xpu::api::of_another_version(int)" in out["guess_symbol.cpp"]
    told = [f for f in KunlunBuild(given).check() if f.name == "kernels"]
    assert [f.verdict for f in told] == [Verdict.GOOD, Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert "guess_header.cpp is left out" in told[1].text


def test_any_other_source_that_does_not_fit_is_an_error_with_the_way_out(
    monkeypatch, tmp_path, tree
):
    small_shim(monkeypatch, tmp_path, core=CORE, symbol=NO_SYMBOL, guess_good="int good();")
    given = options(tree / "sdk", build_dir=str(tmp_path / "built"))
    with pytest.raises(ChipError) as caught:
        KunlunBuild(given).compile()
    text = str(caught.value)
    assert f"baidu::xpu::api::of_another_version(int) ({RAW})" in text
    assert "libxpuapi.so (package XHPC (simulated)) should have it" in text
    assert "--library-dirs" in text and str(tree) in text
    (build.KERNELS / "symbol.cpp").write_text(NO_HEADER)
    with pytest.raises(ChipError, match=r"xpu/of_another_version.h: No such file.*--include-dirs"):
        KunlunBuild(given).compile()


def test_a_shim_that_does_not_load_is_told_when_it_is_built(monkeypatch, tmp_path, tree):
    crash = "__attribute__((constructor)) static void crash() { __builtin_trap(); }"
    small_shim(monkeypatch, tmp_path, core=crash)
    given = options(tree / "sdk", build_dir=str(tmp_path / "built"))
    with pytest.raises(ChipError, match=r"is built, but does not load.*killed by SIG(ILL|TRAP)"):
        KunlunBuild(given).compile()


@pytest.mark.parametrize(
    ("symbol", "library"),
    [
        ("_ZN5baidu3xpu5xblas9fc_fusionEPNS0_3api7ContextE", "libxpu_blas.so"),
        ("_ZN5baidu3xpu3api3addIfEEiPNS1_7ContextE", "libxpuapi.so"),
        ("_ZN5baidu3xpu3xfa14mha_varlen_fwdEPNS0_3api7ContextE", "libxpu_flash_attention.so"),
        ("_ZN9infer_ops18add_rms_layer_normEPN5baidu3xpu3api7ContextE", "libapiinfer.so"),
        (
            "_ZN8xftblock32xft_context_core_attenion_blockEPN5baidu3xpu3api7ContextE",
            "libxft_blocks.so",
        ),
        ("_ZN5infer_ops14moe_fc_fusionEi", "libapiinfer.so"),
        ("xpu_malloc", "libxpurt.so"),
        ("xpumlInit", "libxpuml.so"),
        ("_Z14bkcl_init_rankPP11BKCLContext", "libbkcl.so"),
        ("printf", ""),
    ],
)
def test_a_symbol_leads_to_its_library(symbol, library):
    assert build.terms().exporter(symbol) == library
