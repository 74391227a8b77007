"""The build layer of a chip with an SDK: what is installed, what is wrong with it, and the shim
that is compiled against it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anychip.contract import compile as shop
from anychip.contract import compile_look
from anychip.contract.build import Build, Compatibility, Finding, Library, Verdict
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.libraries import Search, explained, look
from anychip.contract.loader import in_folders, stem
from anychip.sdkbase import headers
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.guesses import guesses_in_use
from anychip.sdkbase.places import paths_of
from anychip.sdkbase.sdk import Sdk
from anychip.sdkbase.table import matrix, rows
from anychip.sdkbase.versions import ToldVersion, origins

LOG = logging.getLogger("anychip.chip")
NATIVE = Path(__file__).with_name("native")
"""Folder of shim.h, which every shim includes."""
FLAGS = ("-O2", "-std=c++17", "-fvisibility=hidden", "-Wall", "-Wextra")


@dataclass(frozen=True)
class BuildTerms:
    """A vendor's names and words.

    kernels: the chip's folder of sources and tables. There: libraries.tsv (library, package,
    variable, role, symbols): role `called`, `cards` (for several cards alone) or `others`;
    symbols: a word of the library's symbols. versions.tsv: see `table.matrix`.
    operators.tsv and abi_*.tsv: see `guesses`. package: of a header. called: C functions that the
    chip asks for by their names. install, way_out: what to do where no SDK was found, and where
    the shim does not build.
    """

    chip: str
    kernels: Path
    form: SdkForm
    package: Callable[[str], str]
    called: tuple[str, ...]
    install: str
    way_out: str

    def sources(self, *, guesses: bool) -> tuple[Path, ...]:
        """Sources of the shim; a guess is one that may not fit an SDK, and is left out there."""
        found = sorted(self.kernels.glob("*.cpp"))
        return tuple(p for p in found if p.name.startswith("guess_") == guesses)

    def libraries(self) -> list[dict[str, str]]:
        """Rows of libraries.tsv."""
        return rows(self.kernels / "libraries.tsv")

    def exporter(self, symbol: str) -> str:
        """The library whose word comes first in a symbol: its own name space, before its
        arguments'."""
        words = {row["symbols"]: row["library"] for row in self.libraries() if row["symbols"]}
        places = [(symbol.index(word), name) for word, name in words.items() if word in symbol]
        return f"lib{min(places)[1]}.so" if places else ""


class SdkBuild(Build, abstract=True):
    """What is installed, and the shim: kernels/*.cpp, without each guess_*.cpp that does not
    compile or link here. options: as `open` gets them. Touches no device; the vendor's libraries
    are loaded in child processes.

    A vendor writes `_version_files`, `_versions_called` and, where it has a tool, `_tool`; it hands
    over the SDK that it found and its `BuildTerms`.
    """

    def __init__(self, options: Mapping[str, Any], sdk: Sdk, terms: BuildTerms) -> None:
        self._options, self.sdk, self._terms = options, sdk, terms
        (self._folder,) = paths_of(str(options.get("build_dir") or "~/.cache/anychip/build"))

    @property
    def _tool(self) -> str:
        """Path of the vendor's tool; empty where there is none."""
        return ""

    def _version_files(self) -> dict[str, ToldVersion]:
        """What the packages' version files say: a change of one compiles the shim again."""
        raise NotImplementedError

    def _versions_called(self) -> dict[str, ToldVersion]:
        """What libraries and tools say when they are called."""
        raise NotImplementedError

    def requires(self) -> tuple[Library, ...]:
        """Libraries in the order in which they load, those that are lacking, then headers."""
        return (*self._search.wanted, *self._headers())

    def versions(self) -> Mapping[str, str]:
        """Of each part that tells one."""
        return {name: told.version for name, told in self._told.items() if told.version}

    def matrix(self) -> tuple[Compatibility, ...]:
        """kernels/versions.tsv."""
        return matrix(self._terms.kernels / "versions.tsv", self.versions())

    def check(self) -> tuple[Finding, ...]:
        """SDK, headers, compiler, shim, libraries, versions, guesses; each says if simulated."""
        mark = " [simulated SDK]" if self.sdk.simulated else ""
        return tuple(replace(found, text=found.text + mark) for found in self._looks())

    def environment(self) -> Mapping[str, str]:
        """The two variables, and what goes in front of LD_LIBRARY_PATH and PATH; none where no
        library is found. Whole paths: a shell that reads them may stand in another folder."""
        terms, root = self._terms, self.sdk.root
        runtime = self.sdk.libraries.get(terms.form.runtime)
        front = dict.fromkeys(os.path.abspath(path.parent) for path in self.sdk.load_order)
        if not front:
            return {}
        root = root / "sdk" if root and (root / "sdk").is_dir() else root
        values = {
            terms.form.root_variable: os.path.abspath(root) if root else "",
            terms.form.runtime_variable: os.path.abspath(runtime.parent) if runtime else "",
            "LD_LIBRARY_PATH": ":".join(front),
            "PATH": os.path.abspath(Path(self._tool).parent) if self._tool else "",
        }
        return {name: value for name, value in values.items() if value}

    def compile(self) -> str:
        """The shim, from the cache or compiled now. It and all libraries are loaded in a child
        process before they come into this one: what they lack has a name then."""
        terms = self._terms
        if self.sdk.misplaced:
            raise shop.build_error(terms.chip, red(self.sdk.misplaced), ErrorKind.INVALID)
        if not self.sdk.load_order:
            text = f"no library of the SDK was found: {self.sdk.where}; {terms.install}"
            raise shop.build_error(terms.chip, text, ErrorKind.UNSUPPORTED)
        try:
            path = shop.compile_library(self._order, cache_dir=self._folder, progress=LOG.info)
        except ChipError as error:
            if error.fact.kind is not ErrorKind.KERNEL:
                raise
            LOG.info(error.fact.text)
            why = f"the shim does not build against {self.sdk.where}: "
            why += f"{explained(self._search, error)}; {terms.way_out}"
            raise shop.build_error(terms.chip, why) from error
        found = self._loads(path)
        if bad := red(found):
            raise shop.build_error(terms.chip, f"{path} is built, but does not load: {bad}")
        for unsure in (f for f in found if f.verdict is Verdict.UNKNOWN):
            LOG.warning("%s; %s", unsure.text, unsure.step)
        return str(path)

    @property
    def _search(self) -> Search:
        """The libraries that were found, and those that are called and were not."""
        terms, sdk = self._terms, self.sdk
        known = {f"lib{row['library']}": row for row in terms.libraries()}
        found = [(stem(path.name), path) for path in sdk.load_order]  # a name may come twice
        there = dict(found)
        strange = {"package": "SDK", "variable": terms.form.root_variable, "role": "others"}
        wanted: list[Library] = []
        others: list[Library] = []
        for name, path in (*found, *((name, None) for name in known if name not in there)):
            row, file = known.get(name, strange), path.name if path else f"{name}.so"
            package = row["package"]
            package += " (simulated)" if path and terms.form.is_simulated(path) else ""
            entry = Library(file, package, variable=row["variable"], path=str(path or ""))
            (wanted if path or row["role"] == "called" else others).append(entry)
        return Search(tuple(wanted), sdk.library_dirs, tuple(others), terms.exporter, terms.called)

    def _headers(self, *, guesses: bool = False) -> Iterator[Library]:
        """Those that sources want; of the guesses, those that no other source wants."""
        terms = self._terms
        names = set(headers.wanted(terms.sources(guesses=False), [NATIVE]))
        if guesses:
            names = headers.wanted(terms.sources(guesses=True), [NATIVE]).keys() - names
        for name in sorted(names):
            path = str(in_folders(name, self.sdk.include_dirs) or "")
            package = terms.package(name)
            yield Library(name, package, header=True, variable=terms.form.root_variable, path=path)

    @property
    def _order(self) -> shop.BuildOrder:
        terms, sdk = self._terms, self.sdk
        sources, guesses = terms.sources(guesses=False), terms.sources(guesses=True)
        files = [path.resolve() for path in sdk.libraries.values()]
        facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
        macros = [f"-D{m}" for m in str(self._options.get("define") or "").split(",") if m]
        folders = (word for d in (NATIVE, *sdk.include_dirs) for word in ("-I", str(d)))
        return shop.BuildOrder(
            terms.chip,
            f"anychip_{terms.chip}",
            sources,
            (*FLAGS, *folders, *macros),
            optional=guesses,
            way_out=terms.way_out,
            link=shop.link_arguments(list(sdk.libraries.values())),
            depends=(
                headers.digest(headers.outside((*sources, *guesses)), sdk.include_dirs),
                *((NATIVE / "shim.h").read_text(), *map(str, facts)),
                *(told.version for told in self._version_files().values()),
            ),
        )

    def _loads(self, shim: Path) -> tuple[Finding, ...]:
        """The libraries, then the shim behind them."""
        search, entry = self._search, Library(shim.name, "anychip", path=str(shim))
        return look(replace(search, wanted=(*search.wanted, entry)))

    def _looks(self) -> Iterator[Finding]:
        terms, sdk = self._terms, self.sdk
        yield from sdk.misplaced or (self._place(),)
        if not sdk.load_order:
            return
        yield from (headers.told(header, terms.way_out) for header in self._headers())
        shim = compile_look.look(self._order, cache_dir=self._folder)
        yield from shim
        built = [Path(f.text) for f in shim if f.name == "kernels" and f.verdict is Verdict.GOOD]
        yield from self._loads(built[0]) if built else (*self._too_few(), *look(self._search))
        for row in terms.libraries():
            if row["role"] == "cards" and row["library"] not in sdk.libraries:
                yield _one_card(row)
        yield origins(self._told)
        kernels = terms.kernels
        code = (*kernels.glob("*.[ch]*"), *kernels.parent.glob("*.py"))
        yield from guesses_in_use(kernels.glob("abi_*.tsv"), kernels / "operators.tsv", code)

    def _too_few(self) -> Iterator[Finding]:
        """Headers without which a guess will be left out."""
        for header in self._headers(guesses=True):
            if not header.path:
                told = headers.told(header, self._terms.way_out)
                text = f"{told.text}: the guesses that include it will be left out"
                yield replace(told, verdict=Verdict.UNKNOWN, text=text)

    def _place(self) -> Finding:
        """Where the SDK is; bad where it is not, or where a part of it alone is simulated."""
        terms, sdk = self._terms, self.sdk
        if not sdk.load_order:
            text = f"no library of it was found: {sdk.where}"
            return Finding("SDK", Verdict.BAD, text, terms.install)
        if len({terms.form.is_simulated(path) for path in sdk.load_order}) == 1:
            return Finding("SDK", Verdict.GOOD, sdk.where)
        text = f"{sdk.where}; a part is simulated, another is not"
        step = f"set {terms.form.root_variable} and {terms.form.runtime_variable} to one SDK"
        return Finding("SDK", Verdict.BAD, text, step)

    @cached_property
    def _told(self) -> dict[str, ToldVersion]:
        marked = (
            {"SDK": ToldVersion("simulated", self._terms.form.mark)} if self.sdk.simulated else {}
        )
        compiler = {"compiler": ToldVersion(shop.compiler_version(self._terms.chip), "--version")}
        return {**marked, **self._version_files(), **self._versions_called(), **compiler}


def red(found: Iterable[Finding]) -> str:
    """What is bad, each with the way out; empty where nothing is."""
    bad = (f for f in found if f.verdict is Verdict.BAD)
    return "; ".join(f"{f.text} ({f.step})" for f in bad)


def _one_card(row: Mapping[str, str]) -> Finding:
    name, package = f"lib{row['library']}.so", row["package"]
    text = f"{name} (package {package}) is not there: one card is served, several are not"
    return Finding(name, Verdict.UNKNOWN, text, f"install {package} for several cards")
