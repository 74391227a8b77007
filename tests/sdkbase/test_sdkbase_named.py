"""Places that were named and do not hold what is wanted: each is told, none is passed over."""

from __future__ import annotations

import pytest

from anychip.contract.build import Verdict
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.sdk import found_sdk


@pytest.fixture
def form(tmp_path):
    """A whole SDK lies in a usual place."""
    for name in ("lib/librt.so", "lib/libops.so", "include/v/x.h", "include/ops/deep/y.h"):
        file = tmp_path / "usual" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "usual" / "empty").mkdir()
    return SdkForm(
        places=str(tmp_path / "usual"),
        parts=("usual",),
        includes=("include", "include/ops"),
        root_variable="ROOT",
        runtime_variable="RUNTIME",
        runtime="rt",
    )


def found(form, **given):
    return found_sdk({key: str(value) for key, value in given.items()}, form, ["rt", "ops"])


def test_nothing_named_is_no_fault(form):
    assert found(form).misplaced == () and set(found(form).libraries) == {"rt", "ops"}


def test_a_place_that_holds_it_is_no_fault(form, tmp_path):
    usual = tmp_path / "usual"
    (usual / "other").mkdir()
    (usual / "other" / "librt.so.2").touch()
    good = {"sdk_root": usual, "runtime_lib": f"{usual}/empty,{usual}/other"}
    folders = {"library_dirs": f"{usual}/lib,{usual}/other", "include_dirs": usual / "include"}
    assert found(form, **good, **folders).misplaced == ()
    (tmp_path / "headers" / "include").mkdir(parents=True)
    assert found(form, sdk_root=tmp_path / "headers", library_dirs=usual / "lib").misplaced == ()


@pytest.mark.parametrize(
    ("option", "place", "name", "text"),
    [
        ("runtime_lib", "usual/empty", "librt.so", "RUNTIME={} holds no librt.so"),
        ("runtime_lib", "gone", "librt.so", "RUNTIME={} holds no librt.so: there is no such"),
        ("sdk_root", "usual/empty", "SDK", "ROOT={} holds no library of the SDK"),
        ("sdk_root", "typo", "SDK", "ROOT={} holds no library of the SDK: there is no such folder"),
        ("library_dirs", "usual/empty", "library_dirs", "library_dirs={} holds no library"),
        ("include_dirs", "usual/empty", "include_dirs", "include_dirs={} holds no header"),
        ("include_dirs", "gone", "include_dirs", "include_dirs={} holds no header: there is no"),
    ],
)
def test_a_place_that_does_not_is_bad_whatever_lies_elsewhere(
    form, tmp_path, option, place, name, text
):
    """Beside `typo` lies the whole SDK, where a part of one would be looked for."""
    sdk = found(form, **{option: tmp_path / place})
    (told,) = sdk.misplaced
    assert (told.name, told.verdict) == (name, Verdict.BAD)
    assert told.text.startswith(text.format(tmp_path / place))
    assert option in told.step and "or to nothing" in told.step
    assert not sdk.libraries and not sdk.load_order


def test_every_wrong_place_is_told(form, tmp_path):
    usual, gone = tmp_path / "usual", tmp_path / "gone"
    sdk = found(form, runtime_lib=gone, library_dirs=f"{usual}/lib,{gone}", include_dirs=gone)
    assert [f.name for f in sdk.misplaced] == ["librt.so", "library_dirs", "include_dirs"]
    assert f"library_dirs={gone} holds" in sdk.misplaced[1].text


def test_a_folder_of_headers_brings_those_below_it_that_a_part_has(form, tmp_path):
    headers = tmp_path / "usual" / "include"
    sdk = found(form, include_dirs=headers, library_dirs=tmp_path / "usual" / "lib")
    assert sdk.include_dirs == (headers, headers / "ops")


def test_each_folder_is_searched_once(form, tmp_path):
    lib = tmp_path / "usual" / "lib"
    assert found(form, sdk_root=tmp_path / "usual", runtime_lib=lib).library_dirs == (lib,)
