"""Files mapped into memory, and what is known of a tensor inside one."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anychip.contract.formats import BLOCK_FORMATS, PLAIN_FORMATS
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.unfinished import LFS, fetch_again

SUPPORTED_FORMATS = (*PLAIN_FORMATS, *BLOCK_FORMATS)
"""What can be a weight as it lies in a file."""

_COMPARED = 1 << 20
"""Bytes that are compared at once."""

Place = tuple[str, int]
"""Where a tensor lies: its file's name, and bytes from its start."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor inside a file. format: the contract's name where there is one, else the file's own.

    shape: row-major, K last. offset: bytes from the start of the file. nbytes: 0 where the
    format is not supported (its size is then not known).
    """

    format: str
    shape: Shape
    offset: int
    nbytes: int


class MappedFile:
    """A file mapped read-only. `data`: its bytes; the mapping lives as long as a view of it."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                if not file.seek(0, 2):
                    raise CheckpointError(
                        f"the file is empty; {fetch_again(path.parent)}", path=path
                    )
                self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            text = f"cannot be read: {error.strerror or error}"
            raise CheckpointError(text, path=path) from error
        if bytes(self.data[: len(LFS)]) == LFS:
            raise CheckpointError(
                "is Git's pointer to a large file, not the file; run `git lfs pull` there",
                path=path,
            )

    def weight(self, entry: TensorEntry) -> HostWeight:
        """A view of a tensor's bytes; nothing is copied."""
        return HostWeight(entry.format, entry.shape, self.view(entry))

    def view(self, entry: TensorEntry) -> memoryview:
        """A view of a tensor's bytes, whatever they are."""
        return self.data[entry.offset : entry.offset + entry.nbytes]

    def equals(self, entry: TensorEntry, other: MappedFile, there: TensorEntry) -> bool:
        """Whether two tensors of the same size have the same bytes."""
        mine, theirs = self.view(entry), other.view(there)
        return all(
            bytes(mine[at : at + _COMPARED]) == bytes(theirs[at : at + _COMPARED])
            for at in range(0, entry.nbytes, _COMPARED)
        )

    def give_back(self) -> None:
        """Let the system have what was read of it; views stay valid and are read again on use.

        All of it, since a page that is read brings its neighbours along.
        """
        mapping = self.data.obj
        if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let go of the mapping; it is unmapped when the last view of it is gone."""
        self.data = memoryview(b"")


def missing_tensor(name: str, path: Path, why: str = "") -> CheckpointError:
    """The error of a tensor that the model's config asks for. path: the file, or the folder."""
    why = why or "the config and the weights are not of one model, or a file is not whole"
    return CheckpointError(
        f"is missing from the checkpoint: {why}; {fetch_again(folder_of(path))}",
        path=path,
        tensor=name,
    )


def folder_of(path: Path) -> Path:
    """The folder that a model is, or whose file it is."""
    return path if path.is_dir() else path.parent


def check_overlap(path: Path, entries: Iterable[tuple[str, TensorEntry]]) -> None:
    """Refuse two tensors that share bytes."""
    end, before = 0, ""
    for name, entry in sorted(entries, key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.nbytes and entry.offset < end:
            raise CheckpointError(f"shares bytes with tensor '{before}'", path=path, tensor=name)
        if entry.offset + entry.nbytes > end:
            end, before = entry.offset + entry.nbytes, name


def find_entry(tensors: dict[str, TensorEntry], name: str, path: Path) -> TensorEntry:
    """The entry of a tensor that a model needs, in a format that can be read."""
    entry = tensors.get(name)
    if entry is None:
        raise missing_tensor(name, path)
    if entry.format not in SUPPORTED_FORMATS:
        raise UnsupportedModel(
            f"format {entry.format} is not supported; supported: {', '.join(SUPPORTED_FORMATS)}; "
            "convert the model to one of them",
            path=path,
            tensor=name,
        )
    return entry
