"""Where the vendor's SDK is, what is wrong with it, and the shim that is compiled against it."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anychip.chips.kunlun.memory import CALLS as CALLED
from anychip.chips.kunlun.memory import CHIP, OPTIONAL
from anychip.chips.kunlun.telemetry import LAYOUTS, OTHERS, TEXTS
from anychip.contract import compile as shop
from anychip.contract import headers
from anychip.contract.build import Build, Compatibility, Finding, Library, Verdict
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.libraries import Search, explained, look
from anychip.contract.loader import in_folders, load_order, stem
from anychip.contract.places import folders_below, libraries_in, paths_of
from anychip.contract.table import matrix, rows
from anychip.contract.versions import Told, origins, told_by_calls, told_by_file, told_by_tool

LOG = logging.getLogger("anychip.chip")
KERNELS = Path(__file__).with_name("kernels")
PLACES = "/usr/local/xpu,/usr/local/xre,~/.cache/anychip/sim/kunlun"
"""Where XRE's installer and a vendor's image put it, the rest beside it; last, the simulator's."""
PARTS = (
    *("sdk", "runtime", "xre", "xhpc", "xhpc/xdnn", "xhpc/xblas", "xhpc/xfa", "xccl", "xft"),
    *("xvllm", "xvllm/infer_ops", "xvllm/xft_blocks"),
)
"""Folders below a root, or beside it, that have headers and libraries of their own."""
INCLUDES = ("", "/xre", "/xhpc", "/xhpc/xblas", "/xhpc/xfa", "/xhpc/xpudnn", "/xft", "/xccl")
LIBRARIES = ("lib", "lib64", "so")
MARK, DATE = "SIMULATED.txt", r"(?m)^Date:\s*(\S+)"
CALLS = {
    "runtime call": "xpu_get_runtime_version:numbers",
    "driver call": "xpu_get_driver_version:numbers",
    "driver": "xpumlSystemGetDriverVersion:text after xpumlInit",
    "XPUML": "xpumlSystemGetXPUMLVersion:text after xpumlInit",
}
FLAGS = ("-O2", "-std=c++17", "-fvisibility=hidden", "-Wall", "-Wextra")
INSTALL = (
    "install XRE, XHPC and XVLLM, then set KUNLUN_SDK_ROOT to the SDK and KUNLUN_RUNTIME_LIB to "
    "the folder of libxpurt.so; without a card: anychip sim build kunlun"
)
WAY_OUT = (
    "take another version of the SDK, or say where the rest of it is: anychip build kunlun "
    "--include-dirs A,B --library-dirs C,D --define NAME=VALUE"
)


@dataclass(frozen=True)
class Sdk:
    """An SDK as it was found. libraries: short name -> file. load_order: those and what they need
    of these folders: loaded by path in this order, RTLD_GLOBAL, they need no LD_LIBRARY_PATH.

    root: None where nothing was found, or folders alone were given. where: how it was found.
    """

    root: Path | None
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    libraries: Mapping[str, Path]
    load_order: tuple[Path, ...]
    where: str
    simulated: bool


def find_sdk(options: Mapping[str, Any]) -> Sdk:
    """As options or their variables say, else in the usual places. Never raises."""
    names = ("sdk_root", "runtime_lib", "library_dirs", "include_dirs")
    given = {name: str(options.get(name) or "") for name in names}
    told = [f"{name}={value} (option or variable)" for name, value in given.items() if value]
    called = [r["library"] for r in rows(KERNELS / "libraries.tsv") if r["role"] != "others"]
    root = next(iter(paths_of(given["sdk_root"])), None)
    if root is None and not given["library_dirs"]:
        there = (p for p in paths_of(PLACES) if libraries_in(called, _folders(p)))
        root = next(there, None)
        told += [f"usual place {root}"] if root else []
    folders = paths_of(given["library_dirs"]) + paths_of(given["runtime_lib"]) + _folders(root)
    libraries = libraries_in(called, folders)
    order = load_order(libraries.values(), folders)
    includes = folders_below(root, PARTS, [f"include{sub}" for sub in INCLUDES])
    return Sdk(
        root=root,
        include_dirs=paths_of(given["include_dirs"]) + includes,
        library_dirs=folders,
        libraries=libraries,
        load_order=order,
        where=", ".join(told) or f"no option, no variable, nothing in {PLACES}",
        simulated=any(_is_simulated(path) for path in order),
    )


def _folders(root: Path | None) -> tuple[Path, ...]:
    return folders_below(root, PARTS, LIBRARIES)


def _is_simulated(library: Path) -> bool:
    return (library.parent.parent / MARK).is_file()


class KunlunBuild(Build):
    """What is installed, and the shim: kernels/*.cpp, without each guess_*.cpp that does not
    compile or link here. options: as `open` gets them. Touches no device; the vendor's libraries
    are loaded in child processes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options, self._sdk = options, find_sdk(options)
        (self._folder,) = paths_of(str(options.get("build_dir") or "~/.cache/anychip/build"))

    def requires(self) -> tuple[Library, ...]:
        """Libraries in the order in which they load, those that are lacking, then headers."""
        return (*self._search.wanted, *self._headers())

    def versions(self) -> Mapping[str, str]:
        """Of each part that tells one. XRE (its file), XPU-RT (the tool) and the runtime's call,
        major.minor, are numbered apart; BKCL has no call, XCCL is what its file says."""
        return {name: told.version for name, told in self._told.items() if told.version}

    def matrix(self) -> tuple[Compatibility, ...]:
        """kernels/versions.tsv."""
        return matrix(KERNELS / "versions.tsv", self.versions())

    def check(self) -> tuple[Finding, ...]:
        """SDK, headers, compiler, shim, libraries, versions, guesses; each says if simulated."""
        mark = " [simulated SDK]" if self._sdk.simulated else ""
        return tuple(replace(found, text=found.text + mark) for found in self._looks())

    def environment(self) -> Mapping[str, str]:
        """The two variables, and what goes in front of LD_LIBRARY_PATH and PATH; none where no
        library is found."""
        runtime, root, tool = self._sdk.libraries.get("xpurt"), self._sdk.root, self._tool
        front = dict.fromkeys(str(path.parent) for path in self._sdk.load_order)
        if not front:
            return {}
        root = root / "sdk" if root and (root / "sdk").is_dir() else root
        values = {
            "KUNLUN_SDK_ROOT": str(root) if root else "",
            "KUNLUN_RUNTIME_LIB": str(runtime.parent) if runtime else "",
            "LD_LIBRARY_PATH": ":".join(front),
            "PATH": str(Path(tool).parent) if tool else "",
        }
        return {name: value for name, value in values.items() if value}

    def compile(self) -> str:
        """The shim, from the cache, or compiled now and loaded once in a child process."""
        if not self._sdk.load_order:
            text = f"no library of the SDK was found: {self._sdk.where}; {INSTALL}"
            raise shop.build_error(CHIP, text, ErrorKind.UNSUPPORTED)
        new: list[str] = []

        def progress(text: str) -> None:
            new.append(text)
            LOG.info(text)

        try:
            path = shop.compile_library(self._order, cache_dir=self._folder, progress=progress)
        except ChipError as error:
            if error.fact.kind is not ErrorKind.KERNEL:
                raise
            LOG.info(error.fact.text)
            why = f"the shim does not build against {self._sdk.where}: "
            why += f"{explained(self._search, error)}; {WAY_OUT}"
            raise shop.build_error(CHIP, why) from error
        bad = [f for f in self._loads(path) if f.verdict is Verdict.BAD] if new else []
        if bad:
            told = "; ".join(f"{found.text} ({found.step})" for found in bad)
            raise shop.build_error(CHIP, f"{path} is built, but does not load: {told}")
        return str(path)

    @property
    def _search(self) -> Search:
        known = {f"lib{row['library']}": row for row in rows(KERNELS / "libraries.tsv")}
        there = {stem(path.name): path for path in self._sdk.load_order}
        strange = {"package": "SDK", "variable": "KUNLUN_SDK_ROOT", "role": "others"}
        wanted: list[Library] = []
        others: list[Library] = []
        for name in dict.fromkeys((*there, *known)):
            row, path = known.get(name, strange), str(there.get(name, ""))
            file = Path(path).name or f"{name}.so"
            note = " (simulated)" if path and _is_simulated(there[name]) else ""
            entry = Library(file, row["package"] + note, variable=row["variable"], path=path)
            (wanted if path or row["role"] == "called" else others).append(entry)
        by_name = (*re.findall(r"\w+(?=:)", CALLED), *LAYOUTS, *TEXTS, *OTHERS)
        called = tuple(symbol for symbol in by_name if symbol not in OPTIONAL)
        return Search(tuple(wanted), self._sdk.library_dirs, tuple(others), _exporter, called)

    def _headers(self) -> Iterator[Library]:
        package = {"xpu/runtime.h": "XRE", "xpu/xpuml.h": "XRE", "xpu/bkcl.h": "XCCL"}
        for name in headers.wanted(_sources(guesses=False)):
            path = str(in_folders(name, self._sdk.include_dirs) or "")
            owner = package.get(name, "XHPC or XVLLM")
            yield Library(name, owner, header=True, variable="KUNLUN_SDK_ROOT", path=path)

    @property
    def _order(self) -> shop.BuildOrder:
        files = [path.resolve() for path in self._sdk.libraries.values()]
        facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
        names = headers.wanted((*_sources(guesses=False), *_sources(guesses=True)))
        macros = [f"-D{m}" for m in str(self._options.get("define") or "").split(",") if m]
        folders = (word for d in self._sdk.include_dirs for word in ("-I", str(d)))
        return shop.BuildOrder(
            CHIP,
            "anychip_kunlun",
            _sources(guesses=False),
            (*FLAGS, *folders, *macros),
            optional=_sources(guesses=True),
            link=shop.link_arguments(list(self._sdk.libraries.values())),
            depends=(
                headers.digest(names, self._sdk.include_dirs),
                *map(str, facts),
                *(told.version for told in self._files.values()),
            ),
        )

    def _loads(self, shim: Path) -> tuple[Finding, ...]:
        """The libraries, then the shim behind them."""
        search, entry = self._search, Library(shim.name, "anychip", path=str(shim))
        return look(replace(search, wanted=(*search.wanted, entry)))

    def _looks(self) -> Iterator[Finding]:
        sdk = self._sdk
        if not sdk.load_order:
            yield Finding("SDK", Verdict.BAD, f"no library of it was found: {sdk.where}", INSTALL)
            return
        mixed = len({_is_simulated(path) for path in sdk.load_order}) > 1
        text = f"{sdk.where}{'; a part is simulated, another is not' if mixed else ''}"
        step = "set KUNLUN_SDK_ROOT and KUNLUN_RUNTIME_LIB to one SDK" if mixed else ""
        yield Finding("SDK", Verdict.BAD if mixed else Verdict.GOOD, text, step)
        yield from (headers.told(header, WAY_OUT) for header in self._headers())
        shim = shop.look(self._order, cache_dir=self._folder)
        yield from shim
        built = [Path(f.text) for f in shim if f.name == "kernels" and f.verdict is Verdict.GOOD]
        yield from self._loads(built[0]) if built else look(self._search)
        if "bkcl" not in sdk.libraries:
            text = "libbkcl.so (package XCCL) is not there: one card is served, several are not"
            yield Finding("libbkcl.so", Verdict.UNKNOWN, text, "install XCCL for several cards")
        yield origins(self._told)
        yield from _guesses()

    @cached_property
    def _told(self) -> dict[str, Told]:
        there = [self._sdk.libraries[n] for n in ("xpurt", "xpuml") if n in self._sdk.libraries]
        return {
            **({"SDK": Told("simulated", MARK)} if self._sdk.simulated else {}),
            **self._files,
            **told_by_calls(load_order(there, self._sdk.library_dirs), CALLS),
            "XPU-RT": told_by_tool([self._tool or "xpu_smi", "-q"], r"XPU-RT Version\s*:\s*(\S+)"),
            "compiler": Told(shop.compiler_version(CHIP), "--version"),
        }

    @property
    def _files(self) -> dict[str, Told]:
        """What the version file of each package says; of XHPC its date, as FastDeploy reads it."""
        root, runtime = self._sdk.root, self._sdk.libraries.get("xpurt")
        found = {}
        for package in ("XHPC", "XVLLM", "XCCL"):
            homes = folders_below(root, ("", "sdk"), [package.lower()])
            found[package] = told_by_file(homes, *([DATE] if package == "XHPC" else []))
        date = found["XHPC"]
        found["XHPC"] = Told(f"dev/{date.version}" if date.version else "", date.whence)
        return found | {"XRE": told_by_file([runtime.parent.parent] if runtime else [])}

    @property
    def _tool(self) -> str:
        """The SDK's xpu_smi, else that on the path; empty where there is none."""
        root = self._sdk.root
        near = in_folders("xpu_smi", (root / "bin", root.parent / "bin")) if root else None
        return str(near or shutil.which("xpu_smi") or "")


def _sources(*, guesses: bool) -> tuple[Path, ...]:
    return tuple(p for p in sorted(KERNELS.glob("*.cpp")) if p.name.startswith("guess_") == guesses)


def _exporter(symbol: str) -> str:
    """The library whose word comes first in a symbol: its own name space, before its arguments'."""
    words = {r["symbols"]: r["library"] for r in rows(KERNELS / "libraries.tsv") if r["symbols"]}
    places = [(symbol.index(word), name) for word, name in words.items() if word in symbol]
    return f"lib{min(places)[1]}.so" if places else ""


def _guesses() -> Iterator[Finding]:
    """What the chip uses of the tables' guesses."""
    code = [p.read_text() for p in (*KERNELS.glob("*.[ch]*"), *Path(__file__).parent.glob("*.py"))]
    words = set(re.findall(r"\w+", "\n".join(code)))
    tables = (row for file in sorted(KERNELS.glob("abi_*.tsv")) for row in rows(file))
    guesses = [row["name"] for row in tables if row["evidence"] == "guess"]
    used = [name for name in guesses if name.rpartition("::")[2] in words]
    operators = [r["operator"] for r in rows(KERNELS / "operators.tsv") if r["assumed"]]
    if used or operators:
        text = f"assumed of the vendor's interface, {len(used)} rows: {', '.join(used)}; of its "
        text += f"semantics, {len(operators)} operators: {', '.join(dict.fromkeys(operators))}"
        step = "on a real SDK: anychip doctor --model-path compares each with the oracle"
        yield Finding("assumed", Verdict.UNKNOWN, text, step)
