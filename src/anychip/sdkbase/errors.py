"""What a vendor's codes mean: one table for all of its libraries, each with numbers of its own."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind, invalid
from anychip.sdkbase.table import rows

STEP = 10_000
"""As a code of `map_error`, a number of the n-th library, counted from 0, has n times this added:
number 1 of the second one is code 10001."""


@dataclass(frozen=True)
class CodeSpace:
    """A library's numbers; the sign does not matter. errno_below: smaller ones are the system's."""

    name: str
    errno_below: int = 0


class ErrorTable:
    """The codes of a chip's libraries, from a tab-separated file that is read when it is needed.

    Columns: space (the library), code (not negative), name, layer and kind (in the contract's
    words), fatal (yes or no), text. What the file does not have keeps its number and is fatal:
    only the full host memory of an errno is survived.
    """

    def __init__(self, chip: str, file: Path, spaces: Sequence[CodeSpace]) -> None:
        self.chip, self._file, self._spaces = chip, file, tuple(spaces)

    @cached_property
    def facts(self) -> Mapping[int, ErrorFact]:
        """Every row of the file by its code."""
        return {self.code(r["space"], int(r["code"])): _fact(r) for r in rows(self._file)}

    def code(self, space: str, number: int) -> int:
        """The code of a library's number. Raises ValueError for a library that is not declared."""
        names = [known.name for known in self._spaces]
        return STEP * names.index(space) + abs(number)

    def fact(self, code: int) -> ErrorFact:
        """What a code means, whatever its sign."""
        return self.facts.get(abs(code)) or self._unknown(code)

    def _unknown(self, code: int) -> ErrorFact:
        place, number = divmod(abs(code), STEP)
        space = self._spaces[place] if place < len(self._spaces) else CodeSpace("no library")
        is_errno = number < space.errno_below
        text = f"{space.name} {number}: unknown code {code}"
        if is_errno:
            text = f"{space.name} {code}, an errno: {os.strerror(number)}"
        full = is_errno and number == errno.ENOMEM
        kind = ErrorKind.OUT_OF_MEMORY if full else ErrorKind.KERNEL
        return ErrorFact(ChipLayer.EXECUTION, kind, not full, text)

    def error(
        self, space: str, status: int, told: str, operators: tuple[str, ...] = ()
    ) -> ChipError:
        """The typed error of a library's status that is not 0. told: the call that gave it."""
        code = self.code(space, status)
        fact = self.fact(code)
        fact = replace(fact, text=f"{told}: {fact.text}")
        return ChipError(fact, chip=self.chip, code=code, operators=operators)

    def unfit(self, text: str) -> ChipError:
        """A library that is not there or is not what the chip was written for. Fatal."""
        fact = ErrorFact(ChipLayer.BUILD, ErrorKind.VERSION, True, text)
        return ChipError(fact, chip=self.chip)

    def refused(self, layer: ChipLayer, text: str) -> ChipError:
        """A call that the contract does not allow."""
        return invalid(self.chip, layer, text)


def _fact(row: Mapping[str, str]) -> ErrorFact:
    text = f"{row['space']} {row['code']} ({row['name']}): {row['text']}"
    return ErrorFact(ChipLayer(row["layer"]), ErrorKind(row["kind"]), row["fatal"] == "yes", text)
