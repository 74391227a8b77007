"""How a vendor lays an SDK out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anychip.sdkbase.places import folders_below


@dataclass(frozen=True)
class SdkForm:
    """Where the parts of an SDK lie, and the variables that lead to them.

    places: folders that it is installed in, separated by commas, tried in order. parts: folders
    below a root, or beside it, that have headers and libraries of their own. includes, libraries:
    the folders of those in a part. mark: a file in a part that says that it is simulated.
    root_variable, runtime_variable: they lead to the SDK, and to the folder of the library
    `runtime` (a short name).
    """

    places: str
    parts: tuple[str, ...]
    includes: tuple[str, ...] = ("include",)
    libraries: tuple[str, ...] = ("lib", "lib64")
    mark: str = "SIMULATED.txt"
    root_variable: str = ""
    runtime_variable: str = ""
    runtime: str = ""

    def folders(self, root: Path | None) -> tuple[Path, ...]:
        """Folders with libraries of the SDK at this root; none where there is no root."""
        return folders_below(root, self.parts, self.libraries)

    def headers(self, root: Path | None) -> tuple[Path, ...]:
        """The same for headers."""
        return folders_below(root, self.parts, self.includes)

    def below_headers(self, folder: Path) -> tuple[Path, ...]:
        """A folder of headers that somebody named, and those below it that a part would have."""
        inner = (name.partition("/")[2] for name in self.includes)
        below = (folder / name for name in dict.fromkeys(inner) if name)
        return (folder, *(path for path in below if path.is_dir()))

    def is_simulated(self, library: Path) -> bool:
        """Whether a library is of a simulated part."""
        return (library.parent.parent / self.mark).is_file()
