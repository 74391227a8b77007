"""What the loader makes of libraries: small ones, compiled here, each with one thing wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from anychip.contract import libraries
from anychip.contract.build import Finding, Library, Verdict
from anychip.contract.elf import NoSharedLibrary, dynamic
from anychip.contract.libraries import Search, demangled, look
from anychip.contract.loader import load_order, twins

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")


class Tree:
    """Folders of libraries that need each other; a space and a comma are in the path."""

    def __init__(self, root: Path) -> None:
        self.root = root / "some SDK, here"

    def make(self, name: str, text: str, *needs: Path, folder: str = "lib", **more: str) -> Path:
        """A library of this C++ text, linked with others. more: soname, extra (an argument)."""
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.root / f"{name}.cpp"
        source.write_text(text)
        links = [word for n in needs for word in (f"-L{n.parent}", f"-l:{n.name}")]
        soname = ["-Xlinker", "-soname", "-Xlinker", more.get("soname", name)]
        extra = [more["extra"]] if "extra" in more else []
        command = ["g++", "-shared", "-fPIC", "-nostdlib", str(source), "-o", str(path), *soname]
        subprocess.run([*command, *extra, "-Wl,--no-as-needed", *links], check=True)
        return path

    def search(self, *paths: Path, folders=("lib",), **more) -> Search:
        wanted = tuple(
            Library(p.name, f"pack-{p.name}", variable="SOME_ROOT", path=str(p)) for p in paths
        )
        return Search(wanted, tuple(self.root / f for f in folders), **more)


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path)


BASE = 'extern "C" int base() { return 7; }\nnamespace core { int lift(int x) { return x + 1; } }'
TOP = 'extern "C" int base(); extern "C" int top() { return base(); }'
RAW = "_ZN4core4liftEi"


def bad(found: tuple[Finding, ...]) -> list[Finding]:
    return [f for f in found if f.verdict is Verdict.BAD]


def test_sound_libraries_load_in_the_order_of_their_needs(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP, base)
    assert load_order([top, base], ()) == (top, base)
    assert load_order([top], [base.parent]) == (base, top)
    (found,) = look(tree.search(top))
    assert found.verdict is Verdict.GOOD
    assert found.text == "loaded, every symbol resolved: libbase.so.2, libtop.so"


def test_a_dependency_that_is_not_there_is_named_with_who_needs_it(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP, base)
    above = tree.make("libabove.so", 'extern "C" int top();', top)
    base.unlink()
    known = (Library("libbase.so", "the base pack", variable="BASE_ROOT"),)
    (cause,) = bad(look(tree.search(above, top, known=known)))
    assert cause.name == "libbase.so.2"
    assert "package the base pack" in cause.text
    assert cause.text.endswith(f"it is needed by {top}")
    assert "install the base pack, or set BASE_ROOT to the folder" in cause.step


def test_a_dependency_that_nobody_knows_is_told_so(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP, base)
    base.unlink()
    (cause,) = bad(look(tree.search(top)))
    assert "package not known here" in cause.text and "LD_LIBRARY_PATH" in cause.step


def test_a_wanted_library_without_a_path_is_told_with_the_folders_and_the_variable(tree):
    wanted = (Library("libgone.so", "pack-gone", variable="GONE_ROOT"),)
    (cause,) = look(Search(wanted, (tree.root / "lib",)))
    assert cause.verdict is Verdict.BAD and cause.name == "libgone.so"
    assert str(tree.root / "lib") in cause.text
    assert "set GONE_ROOT to the folder that has libgone.so" in cause.step


def test_a_wanted_library_that_others_need_is_told_once(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP, base)
    base.unlink()
    wanted = (Library("libbase.so", "pack"), Library("libtop.so", "top", path=str(top)))
    (cause,) = bad(look(Search(wanted, (tree.root / "lib",))))
    assert f"libbase.so.2 (package pack) was not found; it is needed by {top}" == cause.text


def undefined(tree) -> tuple[Path, Path]:
    """A library that wants what an older release of another one does not have."""
    base = tree.make("libbase.so.2", BASE)
    text = 'namespace core { int lift(int); } extern "C" int top() { return core::lift(1); }'
    top = tree.make("libtop.so", text, base)
    tree.make("libbase.so.2", 'extern "C" int base() { return 7; }')
    return base, top


def test_an_undefined_symbol_is_spelled_and_leads_to_its_package(tree):
    base, top = undefined(tree)
    exporter = {RAW: "libbase.so"}.get
    found = look(tree.search(base, top, exporter=lambda s: exporter(s, "")))
    (cause,) = bad(found)
    assert cause.name == "libtop.so"
    assert f"undefined symbol: core::lift(int) ({RAW}), wanted by {top}" in cause.text
    assert f"{base} (package pack-libbase.so.2) should have it" in cause.text
    assert "install the pack-libbase.so.2 that goes with libtop.so" in cause.step
    assert "set SOME_ROOT" in cause.step
    (good,) = [f for f in found if f.verdict is Verdict.GOOD]
    assert good.text.endswith(": libbase.so.2")


def test_a_symbol_that_the_chip_calls_is_looked_for(tree):
    base = tree.make("libbase.so.2", BASE)
    search = tree.search(base, called=("base", "gone"), exporter=lambda symbol: "libbase.so")
    (cause,) = bad(look(search))
    assert "undefined symbol: gone, wanted by the chip; " in cause.text
    assert "package pack-libbase.so.2" in cause.text
    base.unlink()
    names = [
        f.name for f in bad(look(tree.search(base, called=("base",), exporter=search.exporter)))
    ]
    assert names == ["libbase.so.2"]  # told once: of a library that does not load, nothing is asked


def test_many_undefined_symbols_are_counted(tree):
    names = [f"gone{n}" for n in range(5)]
    calls = " ".join(f'extern "C" int {n}();' for n in names)
    top = tree.make("libtop.so", f"{calls} int top() {{ return {'() + '.join(names)}(); }}")
    (cause,) = bad(look(tree.search(top)))
    assert cause.text.count("gone") == libraries.MOST_SYMBOLS and "and 2 more" in cause.text


def test_a_library_above_a_broken_one_is_no_second_cause(tree):
    base, top = undefined(tree)
    above = tree.make("libabove.so", 'extern "C" int top();', top)
    assert [f.name for f in bad(look(tree.search(base, top, above)))] == ["libtop.so"]


def test_a_symbol_from_a_library_loaded_before_is_no_fault(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP)  # does not say that it needs libbase
    assert not bad(look(tree.search(base, top)))
    assert [f.name for f in bad(look(tree.search(top)))] == ["libtop.so"]


def test_without_ldd_the_first_symbol_is_told_and_that_there_may_be_more(tree, monkeypatch):
    base, top = undefined(tree)
    monkeypatch.setenv("PATH", str(tree.root))
    found = look(tree.search(base, top))
    (cause,) = bad(found)
    assert RAW in cause.text
    (unsure,) = [f for f in found if f.verdict is Verdict.UNKNOWN]
    assert unsure.name == "ldd" and "further ones may follow" in unsure.text


def test_a_file_that_is_no_library_is_told_as_the_loader_tells_it(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP, base)
    base.write_text("text")
    (cause,) = bad(look(tree.search(base, top)))
    assert cause.name == "libbase.so.2" and "file too short" in cause.text
    assert cause.step == "install pack-libbase.so.2 again"


def test_a_library_that_ends_its_process_is_named(tree):
    base = tree.make("libbase.so.2", BASE)
    crash = "__attribute__((constructor)) static void crash() { *(volatile int*)0 = 1; }"
    top = tree.make("libtop.so", crash)
    (cause,) = look(tree.search(base, top))
    assert cause.name == "libtop.so" and "killed by SIGSEGV" in cause.text


def test_one_library_from_two_files_is_told_with_both_and_the_variable(tree, monkeypatch):
    first = tree.make("libbase.so", BASE, soname="libbase.so.1")
    second = tree.make("libbase.so.2", BASE + "\nint other;", folder="old")
    top = tree.make("libtop.so", TOP, second)  # wants the soname that the first does not have
    assert load_order([first, top], [first.parent]) == (first, top)
    # The loader reads its variable when a process starts: the child does.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(second.parent))
    (cause,) = bad(look(tree.search(first, top)))
    assert cause.name == "libbase"
    package = "(package pack-libbase.so)"
    twice = f"loaded from two files: {first} and {second} {package}; LD_LIBRARY_PATH"
    assert twice in cause.text
    assert cause.step == f"take {second.parent} out of LD_LIBRARY_PATH"


def test_a_run_path_that_brings_a_second_file_is_told(tree):
    first = tree.make("libbase.so", BASE, soname="libbase.so.1")
    second = tree.make("libbase.so.2", BASE + "\nint other;", folder="old")
    top = tree.make("libtop.so", TOP, second, extra="-Wl,-rpath,$ORIGIN/../old")
    assert dynamic(top).run_path == (top.parent / "../old",)
    (cause,) = bad(look(tree.search(first, top)))
    assert f"the run path of {top} brings {second}" in cause.text


def test_another_file_of_the_name_on_the_shells_path_is_told(tree, monkeypatch):
    base = tree.make("libbase.so.2", BASE)
    other = tree.make("libbase.so.2", BASE + "\nint other;", folder="torch")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other.parent))
    found = look(tree.search(base))
    assert not bad(found)
    (unsure,) = [f for f in found if f.verdict is Verdict.UNKNOWN]
    assert f"{base} is taken (package pack-libbase.so.2)" in unsure.text
    assert str(other) in unsure.text
    assert unsure.step == f"keep one: take {other.parent} out of LD_LIBRARY_PATH"
    shutil.copyfile(base, other)  # the same library twice is no matter
    assert all(f.verdict is Verdict.GOOD for f in look(tree.search(base)))


def test_a_second_file_in_the_folders_that_are_searched_is_told(tree):
    base = tree.make("libbase.so", BASE, soname="libbase.so.2")
    other = tree.make("libbase.so.2", BASE + "\nint other;", folder="more")
    search = tree.search(base, folders=("lib", "more", "lib"))
    (unsure,) = [f for f in look(search) if f.verdict is Verdict.UNKNOWN]
    twice = f"{base} is taken (package pack-libbase.so); the search also leads to another, {other}"
    assert unsure.text == twice
    assert unsure.step.startswith(f"keep one: remove {other}, or set SOME_ROOT, which decides")
    shutil.copyfile(base, other)  # alike until one of them is updated
    (unsure,) = [f for f in look(search) if f.verdict is Verdict.UNKNOWN]
    assert unsure.text.endswith(f"also leads to a copy, {other}")
    other.unlink()
    other.symlink_to(base)
    assert all(f.verdict is Verdict.GOOD for f in look(search))


def test_stems_decide_where_a_number_may_not():
    old, new = {"/a/libops.so"}, {"/a/libops.so", "/b/libops.so.2"}
    assert twins(old, new) == {}
    assert twins(old, new, ["libops"]) == {"libops": ["/a/libops.so", "/b/libops.so.2"]}


def test_a_library_tells_its_name_and_needs(tree):
    base = tree.make("libbase.so.2", BASE)
    top = tree.make("libtop.so", TOP, base)
    assert dynamic(top).soname == "libtop.so" and dynamic(top).needed == ("libbase.so.2",)
    for length, word in ((2, "no ELF header"), (100, "damaged")):
        cut = tree.root / "cut.so"
        cut.write_bytes(top.read_bytes()[:length])
        with pytest.raises(NoSharedLibrary, match=word):
            dynamic(cut)


def test_symbols_stay_as_they_are_where_nothing_spells_them(monkeypatch, tmp_path):
    assert demangled([RAW, "base"]) == {RAW: "core::lift(int)", "base": "base"}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demangled([RAW]) == {RAW: RAW}
