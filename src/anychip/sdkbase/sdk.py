"""Where a vendor's SDK is: as options or their variables say, else in the usual places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip.contract.loader import load_order
from anychip.contract.registration import Option
from anychip.sdkbase.places import folders_below, libraries_in, paths_of


@dataclass(frozen=True)
class SdkForm:
    """How a vendor lays an SDK out.

    places: folders that it is installed in, separated by commas, tried in order. parts: folders
    below a root, or beside it, that have headers and libraries of their own. includes, libraries:
    the folders of those in a part. mark: a file in a part that says that it is simulated.
    """

    places: str
    parts: tuple[str, ...]
    includes: tuple[str, ...] = ("include",)
    libraries: tuple[str, ...] = ("lib", "lib64")
    mark: str = "SIMULATED.txt"

    def folders(self, root: Path | None) -> tuple[Path, ...]:
        """Folders with libraries of the SDK at this root; none where there is no root."""
        return folders_below(root, self.parts, self.libraries)

    def is_simulated(self, library: Path) -> bool:
        """Whether a library is of a simulated part."""
        return (library.parent.parent / self.mark).is_file()


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


def sdk_options(root_variable: str, runtime_variable: str) -> tuple[Option, ...]:
    """Options that `found_sdk` reads, and those of the build layer, for a chip to declare."""
    return (
        Option("sdk_root", str, "", "folder of the SDK", root_variable),
        Option("runtime_lib", str, "", "folder of the runtime's libraries", runtime_variable),
        Option("include_dirs", str, "", "further folders of headers, separated by commas"),
        Option("library_dirs", str, "", "further folders of libraries, separated by commas"),
        Option("define", str, "", "macros for the shim: NAME=VALUE, separated by commas"),
        Option("build_dir", str, "", "folder for the compiled shim"),
    )


def found_sdk(options: Mapping[str, Any], form: SdkForm, names: Iterable[str]) -> Sdk:
    """The SDK with libraries of these short names. Never raises.

    What is named and has nothing is never replaced by a usual place.
    """
    keys = ("sdk_root", "runtime_lib", "library_dirs", "include_dirs")
    given = {key: str(options.get(key) or "") for key in keys}
    told = [f"{key}={value} (option or variable)" for key, value in given.items() if value]
    wanted = tuple(names)
    root = next(iter(paths_of(given["sdk_root"])), None)
    if root is None and not given["library_dirs"]:
        places = paths_of(form.places)
        root = next((p for p in places if libraries_in(wanted, form.folders(p))), None)
        told += [f"usual place {root}"] if root else []
    folders = paths_of(given["library_dirs"]) + paths_of(given["runtime_lib"]) + form.folders(root)
    libraries = libraries_in(wanted, folders)
    order = load_order(libraries.values(), folders)
    return Sdk(
        root=root,
        include_dirs=paths_of(given["include_dirs"])
        + folders_below(root, form.parts, form.includes),
        library_dirs=folders,
        libraries=libraries,
        load_order=order,
        where=", ".join(told) or f"no option, no variable, nothing in {form.places}",
        simulated=any(form.is_simulated(path) for path in order),
    )
