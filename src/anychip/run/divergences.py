"""What becomes of a divergence: its call goes into a file, and a line of the log says so."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from anychip.contract.registration import Chip
from anychip.contract.version import CONTRACT, dotted
from anychip.ops.saved import save
from anychip.run.check import Found

MOST_FILES = 8
"""Files of one run: a chip that is wrong all over must not fill the disk."""

log = logging.getLogger("anychip.engine")


class DivergenceLog:
    """Saves the first divergence of each kind and warns of it. paths: the files, in order."""

    def __init__(
        self, folder: Path, chip: Chip, device: int = 0, options: Mapping[str, str] | None = None
    ) -> None:
        """device, options: how the chip was opened, so that a replay opens it in the same way."""
        given = {f"option {name}": value for name, value in (options or {}).items()}
        self._folder, self._seen_on = folder, {**seen_on(chip), "device": str(device), **given}
        self._opening = opening(chip.name, device, options or {})
        self.paths: list[Path] = []

    def __call__(self, found: Found) -> str:
        """Keep it, and tell the log."""
        kept = self.keep(found)
        log.warning("%s. %s", found, kept)
        return kept

    def keep(self, found: Found) -> str:
        """What became of it. Never raises for a full disk: the run goes on, and the text tells."""
        if len(self.paths) == MOST_FILES:
            return f"Not saved: {MOST_FILES} files of this run are there already"
        try:
            path = self._save(found)
        except OSError as error:
            return f"Not saved: {self._folder}: {error.strerror}; name another --check-ops-dir"
        self.paths.append(path)
        command = f"anychip replay-op {shlex.quote(str(path))} {self._opening}"
        return f"Saved: {path}; next: {command}"

    def _save(self, found: Found) -> Path:
        _make_private(self._folder)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = _unused(self._folder, f"{stamp}-{found.divergence.op}")
        where = {"step": str(found.step), "call": str(found.divergence.index)}
        save(path, replace(found.divergence.call, seen_on={**self._seen_on, **where}))
        return path


def opening(backend: str, device: int, options: Mapping[str, str]) -> str:
    """The flags with which a command opens a chip in the same way."""
    words = ["--backend", backend]
    words += ["--device-index", str(device)] if device else []
    for name, value in options.items():
        words += ["--chip-option", f"{name}={value}"]
    return shlex.join(words)


def seen_on(chip: Chip) -> Mapping[str, str]:
    """Chip, contract and versions, by name."""
    versions = {f"version of {name}": text for name, text in chip.build.versions().items()}
    said = {"chip": chip.name, "vendor": chip.vendor, "contract": dotted(CONTRACT)}
    return {**said, **versions}


def _make_private(folder: Path) -> None:
    """The folder and what is missing above it, for the owner alone."""
    for missing in reversed([folder, *folder.parents]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _unused(folder: Path, stem: str) -> Path:
    """A name that no file has; `save` refuses one that has come up since."""
    names = (f"{stem}.npz", *(f"{stem}-{n}.npz" for n in range(2, MOST_FILES * 100)))
    return next(folder / name for name in names if not (folder / name).exists())
