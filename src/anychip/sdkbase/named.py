"""Places that somebody named by an option or its variable, and that do not hold what is wanted:
told, and never passed over for another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from anychip.contract.build import Finding, Verdict
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.places import expanded, libraries_in, paths_of

HEADERS = tuple(f"{below}*.{end}" for below in ("", "*/", "*/*/") for end in ("h", "hpp", "cuh"))
"""Where a folder of headers may have them: often none in itself."""


def misplaced(given: Mapping[str, str], form: SdkForm, names: Iterable[str]) -> tuple[Finding, ...]:
    """A bad finding for each. given: option -> text. names: short names of wanted libraries."""
    return (
        *_root(given, form, tuple(names)),
        *_runtime(given["runtime_lib"], form),
        *_folders("library_dirs", given["library_dirs"], "library", ("lib*.so*",)),
        *_folders("include_dirs", given["include_dirs"], "header", HEADERS),
    )


def _root(given: Mapping[str, str], form: SdkForm, names: tuple[str, ...]) -> Iterator[Finding]:
    """Below it lies a library of the chip, not just beside it; headers are enough where another
    option names the libraries' folders."""
    if not (text := given["sdk_root"]):
        return
    root = expanded(text)
    below = [folder for folder in form.folders(root) if folder.is_relative_to(root)]
    headers = [folder for folder in form.headers(root) if folder.is_relative_to(root)]
    if not libraries_in(names, below) and not (given["library_dirs"] and headers):
        yield _wrong("SDK", (form.root_variable, "sdk_root"), [root], "library of the SDK")


def _runtime(text: str, form: SdkForm) -> Iterator[Finding]:
    folders, file = paths_of(text), f"lib{form.runtime}.so"
    if form.runtime and folders and not libraries_in([form.runtime], folders):
        yield _wrong(file, (form.runtime_variable, "runtime_lib"), folders, file)


def _folders(option: str, text: str, what: str, patterns: tuple[str, ...]) -> Iterator[Finding]:
    for folder in paths_of(text):
        if not any(True for pattern in patterns for _ in folder.glob(pattern)):
            yield _wrong(option, ("", option), [folder], what)


def _wrong(name: str, setting: tuple[str, str], places: Sequence[Path], what: str) -> Finding:
    """setting: the variable, empty where there is none, and the option. what: is not there."""
    variable, option = setting
    text = f"{variable or option}={','.join(map(str, places))} holds no {what}"
    if not any(map(os.path.isdir, places)):
        text += ": there is no such folder"
    named = f"{variable} (or the option {option})" if variable else f"the option {option}"
    step = f"set {named} to the folder that has it, or to nothing"
    return Finding(name, Verdict.BAD, text, step)
