"""What can be wrong with a tree: faults that are built in, and where the others are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anychip_sim_kunlun.libraries import NATIVE, libraries_of
from anychip_sim_kunlun.profiles import Profile
from anychip_sim_kunlun.refusal import BuildRefused

BUILT_IN: Mapping[str, tuple[str, str]] = {
    "missing-symbol": (
        "NAME",
        "a library without that symbol: the linker's name, or a C++ name such as ns::function,"
        " which removes every overload and instantiation",
    ),
    "missing-library": ("LIB", "a tree without that library, such as bkcl"),
    "duplicate-library": ("LIB", "a second copy of that library, in the other lib folder"),
    "no-driver": ("", "libraries without a driver: no card answers, xpu_smi prints nothing"),
    "foreign-smi": ("", "bin/xpu-smi is another vendor's tool of that name; bin/xpu_smi is absent"),
}
"""Name -> what its value is called (empty: none), and what it does."""

RUN_TIME = NATIVE / "runtime" / "FAULTS.md"
"""The faults that a process asks for itself, in the variable XPUSIM_FAULTS."""


@dataclass(frozen=True)
class Fault:
    """One built-in fault. value: empty where it takes none."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name


def read_fault(text: str, profile: Profile) -> Fault:
    """`name` or `name=value`. Raises BuildRefused where there is no such fault or value, or where
    the profile's SDK has no such library."""
    name, _, value = text.partition("=")
    if name not in BUILT_IN:
        raise BuildRefused(f"--fault {text}: there is no {name!r}; there are {', '.join(BUILT_IN)}")
    wanted = BUILT_IN[name][0]
    if bool(wanted) != bool(value):
        form = f"{name}={wanted}" if wanted else name
        raise BuildRefused(f"--fault {text}: write it as {form}")
    stems = [library.stem for library in libraries_of(profile)]
    if wanted == "LIB" and value not in stems:
        there = f"{profile.name} has {', '.join(stems)}"
        raise BuildRefused(f"--fault {text}: no library {value!r}; {there}")
    return Fault(name, value)


def values_of(faults: Sequence[Fault], name: str) -> tuple[str, ...]:
    """The values with which a fault was asked for."""
    return tuple(fault.value for fault in faults if fault.name == name)


def listing() -> str:
    """Every fault, for people."""
    forms = {f"{n}={value}" if value else n: text for n, (value, text) in BUILT_IN.items()}
    lines = [f"  {form:24} {text}" for form, text in forms.items()]
    head = "built into a tree, with --fault (an older driver: --driver):"
    return "\n".join([head, *lines, "", "asked for by a process:", "", RUN_TIME.read_text()])
