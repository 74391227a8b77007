"""What can be wrong with a checkpoint, said so that the user can act on it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class CheckpointError(ValueError):
    """A missing, broken or contradictory model file. Names the file and, if known, the tensor."""

    def __init__(
        self, message: str, *, path: Path | str | None = None, tensor: str | None = None
    ) -> None:
        self.path = path
        self.tensor = tensor
        where = [] if path is None else [str(path)]
        where += [] if tensor is None else [f"tensor '{tensor}'"]
        super().__init__(": ".join([*where, message]))


class UnsupportedModel(CheckpointError):
    """A sound checkpoint with an architecture, format or feature that is not supported."""


def unsupported(
    what: str, found: object, supported: Iterable[str], path: Path | str | None = None
) -> UnsupportedModel:
    """The error for `what` (singular) being `found` where only `supported` can be served."""
    names = ", ".join(supported)
    return UnsupportedModel(f"{what} '{found}' is not supported; supported: {names}", path=path)


def not_found(path: Path) -> CheckpointError:
    """The error of a path that does not exist."""
    hint = "pass a model folder, a .gguf file, or a model of a hub as ORG/NAME"
    return CheckpointError(f"no such file or folder; {hint}", path=path)
