"""Where a vendor's SDK is: as options or their variables say, else in the usual places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip.contract.build import Finding
from anychip.contract.loader import load_order
from anychip.contract.registration import Option
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.named import misplaced
from anychip.sdkbase.places import expanded, libraries_in, paths_of


@dataclass(frozen=True)
class Sdk:
    """An SDK as it was found. libraries: short name -> file. load_order: those and what they need
    of these folders: loaded by path in this order, RTLD_GLOBAL, they need no LD_LIBRARY_PATH.

    root: None where nothing was found, or folders alone were given. where: how it was found.
    misplaced: bad findings about named places that do not hold what is wanted; then there are no
    libraries, whatever lies elsewhere.
    """

    root: Path | None
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    libraries: Mapping[str, Path]
    load_order: tuple[Path, ...]
    where: str
    simulated: bool
    misplaced: tuple[Finding, ...] = ()


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
    given, wanted = {key: str(options.get(key) or "") for key in keys}, tuple(names)
    told = [f"{key}={value} (option or variable)" for key, value in given.items() if value]
    wrong = misplaced(given, form, wanted)
    root = expanded(given["sdk_root"]) if given["sdk_root"] else None
    if root is None and not given["library_dirs"]:
        places = paths_of(form.places)
        root = next((p for p in places if libraries_in(wanted, form.folders(p))), None)
        told += [f"usual place {root}"] if root else []
    named = (*paths_of(given["library_dirs"]), *paths_of(given["runtime_lib"]))
    folders = tuple(dict.fromkeys((*named, *form.folders(root))))
    libraries = {} if wrong else libraries_in(wanted, folders)
    order = load_order(libraries.values(), folders)
    headers = (inner for f in paths_of(given["include_dirs"]) for inner in form.below_headers(f))
    return Sdk(
        root=root,
        include_dirs=tuple(dict.fromkeys((*headers, *form.headers(root)))),
        library_dirs=folders,
        libraries=libraries,
        load_order=order,
        where=", ".join(told) or f"no option, no variable, nothing in {form.places}",
        simulated=bool(order) and all(form.is_simulated(path) for path in order),
        misplaced=wrong,
    )
