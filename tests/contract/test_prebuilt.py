"""What an installation carries: used where it was made of exactly this, else a reason."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anychip.contract import prebuilt
from anychip.contract.compile import BuildOrder
from anychip.contract.prebuilt import MANIFEST, carried, made_of, platform_folder, write_manifest


@pytest.fixture
def order(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "a.cpp").write_text('#include "a.h"\n')
    (folder / "a.h").write_text("int one();\n")
    return BuildOrder("cpu", "lib_fast", (folder / "a.cpp",), ("-O3",), link=("-s",))


@pytest.fixture
def folder(order, tmp_path):
    """A library of that order, with its manifest."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    library = folder / "lib_fast.so"
    library.write_bytes(b"\x7fELF and so on")
    write_manifest(folder, {library: order}, compiler="g++ 99", glibc=(2, 3))
    return folder


def test_a_library_of_these_sources_and_flags_is_used(order, folder):
    found = carried(order, folder)
    assert found.path == folder / "lib_fast.so" and found.text == "by g++ 99"


def test_without_a_manifest_nothing_is_amiss(order, tmp_path):
    found = carried(order, tmp_path / "none")
    assert found.path is None and not found.amiss and "carries no prebuilt kernels" in found.text


def test_another_library_names_what_is_carried(order, folder):
    found = carried(replace(order, name="lib_faster"), folder)
    assert found.path is None and not found.amiss
    assert found.text.endswith("carries no prebuilt lib_faster, but lib_fast")


@pytest.mark.parametrize("what", ["source", "header", "flag", "link"])
def test_one_of_anything_else_is_never_used(order, folder, what):
    source = order.sources[0]
    if what == "source":
        source.write_text("// edited\n")
    elif what == "header":
        source.with_name("a.h").write_text("long one();\n")
    changed = {"flag": {"flags": ("-O2",)}, "link": {"link": ()}}.get(what, {})
    found = carried(replace(order, **changed), folder)
    assert found.path is None and found.amiss
    assert "was made of other sources or flags than lie here" in found.text


def test_flags_of_compiler_and_linker_are_told_apart(order):
    moved = replace(order, flags=(*order.flags, *order.link), link=())
    assert made_of(moved) != made_of(order)


def test_a_damaged_or_missing_library_is_never_used(order, folder):
    library = folder / "lib_fast.so"
    library.write_bytes(library.read_bytes()[:-1])
    found = carried(order, folder)
    assert found.path is None and found.amiss and "its digest differs" in found.text
    library.unlink()
    found = carried(order, folder)
    assert found.path is None and found.amiss and "install the wheel again" in found.text


@pytest.mark.parametrize("have", [(2, 2), None])
def test_an_older_or_another_c_library_is_told(order, folder, monkeypatch, have):
    monkeypatch.setattr(prebuilt, "glibc", lambda: have)
    found = carried(order, folder)
    assert found.path is None and found.amiss and "needs glibc 2.3, here is" in found.text


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 9}', "null"])
def test_a_manifest_of_another_form_is_told(order, folder, text):
    (folder / MANIFEST).write_text(text)
    found = carried(order, folder)
    assert found.path is None and found.amiss and MANIFEST in found.text


def test_a_manifest_leads_nowhere_else(order, folder):
    """A library lies beside its manifest."""
    told = json.loads((folder / MANIFEST).read_text())
    told["libraries"]["lib_fast"]["file"] = "../lib_fast.so"
    (folder / MANIFEST).write_text(json.dumps(told))
    assert carried(order, folder).path == folder / "lib_fast.so"


def test_the_platform_is_named_as_uname_does():
    assert platform_folder("aarch64").endswith("_aarch64")
