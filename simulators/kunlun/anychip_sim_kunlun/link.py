"""Linking objects into libraries and programs, with the vendor's sonames and no path inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anychip_sim_kunlun.compiler import Compiler, run
from anychip_sim_kunlun.libraries import Library
from anychip_sim_kunlun.profiles import Profile
from anychip_sim_kunlun.refusal import BuildRefused

STANDARD_LIBRARY = (
    *("_ZNSt*", "_ZNKSt*", "_ZSt*", "_ZZSt*", "_ZZNSt*", "_ZGV*St*", "_ZN*9__gnu_cxx*"),
    *("_ZT[ISV]St*", "_ZT[ISV]NSt*", "_ZT[ISV]F*", "_ZT[ISV]PF*"),
)
"""Instantiations of the C++ library that must not be part of a vendor library's interface."""


@dataclass(frozen=True)
class Linker:
    """Links into a tree that is being made. scratch: a folder for the linker's own input."""

    compiler: Compiler
    profile: Profile
    tree: Path
    scratch: Path

    def path_of(self, library: Library) -> Path:
        """Where the library lies in the tree: under its soname, beside it a link without number."""
        return self.tree / library.place / library.soname(self.profile)

    def library(
        self,
        library: Library,
        objects: Sequence[Path],
        needed: Sequence[Library],
        without: Sequence[str] = (),
    ) -> None:
        """Link one library. without: linker's names that it shall not export."""
        target = self.path_of(library)
        target.parent.mkdir(parents=True, exist_ok=True)
        script = self.scratch / f"{library.stem}.map"
        script.write_text(_version_script(without))
        folders = sorted({str(self.path_of(other).parent) for other in needed})
        command = [self.compiler.path, "-shared", "-o", str(target), *map(str, objects)]
        command += ["-Wl,-soname," + library.soname(self.profile), "-Wl,--no-undefined"]
        command += ["-Xlinker", f"--version-script={script}", "-Wl,--no-as-needed"]
        command += [word for folder in folders for word in ("-Xlinker", f"-rpath-link={folder}")]
        command += [str(self.path_of(other)) for other in needed]
        command += [f"-l{name}" for name in library.system]
        run(command)
        plain = target.with_name(f"lib{library.stem}.so")
        if plain != target and not plain.is_symlink():
            plain.symlink_to(target.name)

    def program(self, name: str, place: str, objects: Sequence[Path]) -> Path:
        """Link a program that needs none of our libraries. Returns where it is."""
        target = self.tree / place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        run(
            [self.compiler.path, "-o", str(target), *map(str, objects), "-lpthread", "-ldl", "-lrt"]
        )
        return target

    def exported(self, library: Library) -> Mapping[str, str]:
        """The linker's name of each exported symbol -> its C++ name without arguments."""
        listed = run(["nm", "-D", "--defined-only", "-P", str(self.path_of(library))])
        names = [line.split()[0] for line in listed.splitlines()]
        plain = run(["c++filt", *names]).splitlines() if names else []
        return dict(zip(names, map(_without_arguments, plain), strict=True))


def symbols_named(wanted: str, exported: Mapping[str, str]) -> list[str]:
    """The linker's names that `wanted` means: itself, or all that have this C++ name."""
    return [name for name, plain in exported.items() if wanted in (name, plain)]


def refuse_absent(wanted: Sequence[str], exported: Iterable[Mapping[str, str]]) -> None:
    """Raises BuildRefused for a symbol that no library has: there is nothing to leave out."""
    known = {name for names in exported for pair in names.items() for name in pair}
    for text in wanted:
        if text not in known:
            tail = text.rpartition("::")[2]
            like = sorted(name for name in known if tail in name and "(" not in name)[:8]
            hint = f"; like it are {', '.join(like)}" if like else ""
            raise BuildRefused(f"--fault missing-symbol={text}: no library exports it{hint}")


def _version_script(without: Sequence[str]) -> str:
    """All but these is exported, as far as the sources say so."""
    hidden = " ".join(f"{name};" for name in (*without, *STANDARD_LIBRARY))
    return f"{{ global: *; local: {hidden} }};\n"


def _without_arguments(name: str) -> str:
    """`int ns::f<float>(int)` -> `ns::f`."""
    plain, depth = "", 0
    for letter in name:
        depth += letter in "<("
        if depth == 0:
            plain += letter
        depth -= letter in ">)"
    return plain.split()[-1] if plain.split() else name
