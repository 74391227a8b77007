"""One tree while it is made: compile, link, lay out the rest."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from anychip_sim_kunlun import layout
from anychip_sim_kunlun.board import write_board
from anychip_sim_kunlun.compiler import Compiler
from anychip_sim_kunlun.faults import values_of
from anychip_sim_kunlun.libraries import NATIVE, PROGRAMS, Library, libraries_of, matching
from anychip_sim_kunlun.link import Linker, refuse_absent, symbols_named
from anychip_sim_kunlun.objects import ObjectCache
from anychip_sim_kunlun.order import Say, TreeOrder
from anychip_sim_kunlun.refusal import BuildRefused

RECORD = "build.json"
"""In every tree: what it was made from."""

Started = Mapping[str, Sequence[Future[Path]]]


@dataclass(frozen=True)
class Making:
    """Makes the tree of an order in the folder `tree`. All of it may raise BuildRefused."""

    order: TreeOrder
    compiler: Compiler
    tree: Path
    say: Say

    def make(self, key: str) -> None:
        """The whole tree, its record last."""
        objects = ObjectCache(self.order.cache / "objects", NATIVE, self.compiler)
        parts = self._sources()
        count = sum(map(len, parts.values()))
        self.say(f"compiling {count} sources with {self.compiler.version}; once made, kept")
        with ThreadPoolExecutor(self.order.jobs) as pool, tempfile.TemporaryDirectory() as scratch:
            started = {
                part: [pool.submit(objects.object_of, file, self._defines(file)) for file in files]
                for part, files in parts.items()
            }
            linker = Linker(self.compiler, self.order.profile, self.tree, Path(scratch))
            try:
                self._link_libraries(linker, started)
                self._link_programs(linker, started)
                self._leave_out_symbols(linker, started)
            finally:
                pool.shutdown(cancel_futures=True)  # after an error nobody waits for the others
            self._lay_out(linker)
        objects.forget_unused()
        self._write_record(key)

    def libraries(self) -> list[Library]:
        """Those that the profile's SDK has, in the order in which they are linked."""
        return libraries_of(self.order.profile)

    def _sources(self) -> dict[str, tuple[Path, ...]]:
        parts = {library.stem: library.sources() for library in self.libraries()}
        parts |= {program.name: matching(program.patterns) for program in PROGRAMS}
        empty = [name for name, sources in parts.items() if not sources]
        if empty:
            raise BuildRefused(f"no sources for {', '.join(empty)} in {NATIVE}")
        return parts

    def _defines(self, source: Path) -> tuple[str, ...]:
        """Only where a version goes into the code, so that most objects serve every order."""
        folder = source.relative_to(NATIVE).parts[0]
        if folder == "smi":
            return (f'XPUSIM_XPU_RT="{self.order.xpu_rt}"',)
        return layout.version_defines(self.order.runtime) if folder in ("runtime", "xpuml") else ()

    def _link_libraries(self, linker: Linker, started: Started) -> None:
        for library in self.libraries():
            began = time.monotonic()
            linker.library(library, _made(started[library.stem]), self._needed(library))
            name = library.soname(self.order.profile)
            self._progress(f"{library.place}/{name}", started[library.stem], began)

    def _link_programs(self, linker: Linker, started: Started) -> None:
        for program in PROGRAMS:
            began = time.monotonic()
            linker.program(program.name, program.place, _made(started[program.name]))
            self._progress(f"{program.place}/{program.name}", started[program.name], began)

    def _progress(self, what: str, objects: Sequence[Future[Path]], began: float) -> None:
        self.say(f"{what}: {len(objects)} objects, {time.monotonic() - began:.1f} s")

    def _needed(self, library: Library) -> list[Library]:
        return [other for other in self.libraries() if other.stem in library.needs]

    def _leave_out_symbols(self, linker: Linker, started: Started) -> None:
        """Link again without them, dependents first: each is linked against whole libraries."""
        wanted = values_of(self.order.faults, "missing-symbol")
        if not wanted:
            return
        exported = {library.stem: linker.exported(library) for library in self.libraries()}
        refuse_absent(wanted, exported.values())
        for library in reversed(self.libraries()):
            names = exported[library.stem]
            without = [name for text in wanted for name in symbols_named(text, names)]
            if without:
                made = _made(started[library.stem])
                linker.library(library, made, self._needed(library), without)
                self.say(f"left out of {library.soname(self.order.profile)}: {', '.join(without)}")

    def _lay_out(self, linker: Linker) -> None:
        faults = self.order.faults
        layout.write_headers(self.tree, self.order.runtime)
        layout.write_versions(self.tree, self.order)
        layout.write_notices(self.tree)
        layout.write_tools(self.tree, foreign=bool(values_of(faults, "foreign-smi")))
        write_board(self.tree, self.order, with_driver=not values_of(faults, "no-driver"))
        for library in self.libraries():
            if library.stem in values_of(faults, "duplicate-library"):
                layout.duplicate(linker.path_of(library))
            if library.stem in values_of(faults, "missing-library"):
                layout.remove(linker.path_of(library))

    def _write_record(self, key: str) -> None:
        facts = {"simulated": True, "key": key, **self.order.facts()}
        facts["compiler"] = self.compiler.version
        facts["libraries"] = {
            f"{library.place}/{library.soname(self.order.profile)}": library.component
            for library in self.libraries()
        }
        facts["files"] = layout.files_of(self.tree)
        (self.tree / RECORD).write_text(json.dumps(facts, indent=1) + "\n")


def _made(objects: Sequence[Future[Path]]) -> list[Path]:
    """The object files, once they are there."""
    return [future.result() for future in objects]
