"""One quantized weight, put together from several tensors of a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.formats import Floats, plain_weight


@dataclass(frozen=True)
class Linear:
    """A weight [N, K], or [.., N, K]. Nothing of it is read before `read`.

    exact_rows: some rows in `format`, by first and count, where that takes less than all of it.
    format: the contract's name, or where no format holds it exactly, what it is called in the
    start-up table. tensors: what it is made of, as they are called in the files; nbytes: their
    size there. exact: its bytes in `format`; None where there is none. plain: its values in
    float32. head: what stands before the first row in that format; parts that differ in it cannot
    be stacked.
    """

    format: str
    shape: Shape
    tensors: tuple[str, ...]
    nbytes: int
    exact: Callable[[], HostWeight] | None
    plain: Callable[[], Floats]
    head: bytes = b""
    exact_rows: Callable[[int, int], HostWeight] | None = None

    def read(self) -> HostWeight:
        """Its bytes in `format`, or plain float32 where no format holds it."""
        return self.exact() if self.exact else plain_weight(self.plain())

    def unpacked(self, why: str) -> Linear:
        """The same, to be converted. why: what it is called from then on."""
        return replace(self, format=why, exact=None, exact_rows=None, head=b"")
