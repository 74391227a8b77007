"""Errors of the boundary: each says which layer produced it, its kind, and whether it is fatal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ChipLayer(str, Enum):
    """The layer of a chip that an error comes from."""

    REGISTRATION = "registration"
    EXECUTION = "execution"
    OPERATORS = "operators"
    MEMORY = "memory"
    BUILD = "build"


class ErrorKind(str, Enum):
    """What went wrong, in words that do not depend on the vendor."""

    OUT_OF_MEMORY = "out of memory"
    INVALID = "invalid argument"
    UNSUPPORTED = "unsupported"
    KERNEL = "kernel failure"
    LOST = "device lost"
    TIMEOUT = "timeout"
    VERSION = "version mismatch"


@dataclass(frozen=True)
class ErrorFact:
    """What one vendor code means. A fatal error ends the engine process."""

    layer: ChipLayer
    kind: ErrorKind
    fatal: bool
    text: str


class ContractError(TypeError):
    """A chip breaks the contract: raised when its class is defined, registered or opened."""


class ChipError(RuntimeError):
    """An error from hardware or from a chip's code. `operators`: queued since the last wait."""

    def __init__(
        self,
        fact: ErrorFact,
        *,
        chip: str,
        code: int | None = None,
        operators: tuple[str, ...] = (),
    ) -> None:
        self.fact, self.chip, self.code, self.operators = fact, chip, code, operators
        number = "" if code is None else f" (code {code})"
        queued = f"; queued since the last wait: {', '.join(operators)}" if operators else ""
        super().__init__(
            f"{chip}, {fact.layer.value}: {fact.kind.value}: {fact.text}{number}{queued}"
        )

    @property
    def fatal(self) -> bool:
        """Whether the process that saw it must end."""
        return self.fact.fatal


def out_of_memory(chip: str, asked: int, free: int) -> ChipError:
    """The typed error of an allocation that does not fit; both sizes in bytes."""
    text = f"asked for {asked:,} bytes, {free:,} free"
    return ChipError(ErrorFact(ChipLayer.MEMORY, ErrorKind.OUT_OF_MEMORY, False, text), chip=chip)


def invalid(chip: str, layer: ChipLayer, text: str) -> ChipError:
    """A call that the contract does not allow (double free, wrong length, wrong dtype)."""
    return ChipError(ErrorFact(layer, ErrorKind.INVALID, False, text), chip=chip)
