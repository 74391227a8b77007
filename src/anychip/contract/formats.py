"""Weight formats by name: what their bytes mean, and how many there are.

Plain: a dtype. Blocks: ggml's, see BLOCK_FORMATS. Grouped: "u4g128", codes of 4 or 8 bits without
sign in groups of 128 along K, what GPTQ, AWQ and compressed-tensors hold, see `Grouped`. Whole
numbers on both sides: "w8a8", see `W8A8`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.contract.tensor import Shape

PLAIN_FORMATS = tuple(d.value for d in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16))

BLOCK_FORMATS = {
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "iq4_nl": (32, 18),
    "mxfp4": (32, 17),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
}
"""Quantized formats -> (elements, bytes) a block along K, as ggml defines them (ggml-common.h):
q8_0: fp16 scale d, 32 int8 q; x = d*q. q4_0: fp16 d, 16 bytes of nibbles; x = d*(q-8).
q4_1: fp16 d, fp16 m, 16 bytes; x = d*q + m. Low nibbles are elements 0..15, high 16..31.
mxfp4: a power of two as one byte e8m0, 16 bytes of nibbles that are e2m1."""

W8A8 = ("w8a8", "w8a8_static")
"""int8 by int8: rows of K int8 after a float32 scale each; x = scale * q. A product rounds its
activations to int8 as well, symmetric: with "w8a8" by each token's largest magnitude / 127, with
"w8a8_static" by one float32 scale and one int32 zero point, which stand before the first row:
q = clamp(round(x / scale) + zero)."""

GROUPS = (32, 64, 128)
"""Group sizes along K that chips may take; others are converted at load."""


@dataclass(frozen=True)
class Grouped:
    """A grouped format. bits: 4 or 8. group: elements along K that share a scale, whole 32s.

    A row is K / group groups: fp16 scale d, uint8 zero point z, codes q; x = d * (q - z). Codes of
    8 bits are bytes; of 4 bits, 32 elements are 16 bytes whose low nibbles are elements 0..15 and
    whose high ones 16..31. ordered ("u4g128o"): the columns were sorted by group before they were
    stored; an int32 [K] stands before the first row, and column j of the rows is column order[j]
    of the weight.
    """

    bits: int
    group: int
    ordered: bool = False

    @property
    def name(self) -> str:
        """As formats are called."""
        return f"u{self.bits}g{self.group}{'o' if self.ordered else ''}"

    @property
    def group_bytes(self) -> int:
        """Bytes of one group."""
        return 3 + self.group * self.bits // 8


GROUPED = tuple(
    Grouped(bits, group, ordered)
    for bits in (4, 8)
    for group in GROUPS
    for ordered in (False, True)
)
"""All that chips may take."""

_GROUPED = re.compile(r"u(4|8)g([1-9][0-9]{1,3})(o?)")


def grouped(format: str) -> Grouped | None:
    """The grouped format of that name; None for any other."""
    found = _GROUPED.fullmatch(format)
    if found is None or int(found[2]) % 32:
        return None
    return Grouped(int(found[1]), int(found[2]), bool(found[3]))


def is_quantized(format: str) -> bool:
    """Whether it is a known format that is not plain."""
    return format in BLOCK_FORMATS or format in W8A8 or grouped(format) is not None


def block_elements(format: str) -> int:
    """K is a whole number of these."""
    if format in BLOCK_FORMATS:
        return BLOCK_FORMATS[format][0]
    found = grouped(format)
    return found.group if found else 1


def row_bytes(format: str, k: int) -> int:
    """Bytes of one row of K elements, without what stands before the first row.

    Raises ValueError for an unknown format or a K that is no whole number of blocks.
    """
    if k % block_elements(format):
        raise ValueError(
            f"a row of {k} is not whole blocks of {block_elements(format)} in {format}"
        )
    if format in BLOCK_FORMATS:
        elements, nbytes = BLOCK_FORMATS[format]
        return k // elements * nbytes
    if format in W8A8:
        return 4 + k
    found = grouped(format)
    if found:
        return k // found.group * found.group_bytes
    return k * DType(format).itemsize


def head_bytes(format: str, k: int) -> int:
    """Bytes before the first row.

    Parts that are stacked have the same: the core converts those that do not.
    """
    found = grouped(format)
    if found and found.ordered:
        return 4 * k
    return 8 if format == "w8a8_static" else 0


def format_bytes(format: str, shape: Shape) -> int:
    """Bytes of a weight of this format and shape (..., K), as `HostWeight` holds it."""
    if not shape:
        return DType(format).itemsize
    rows, k = math.prod(shape[:-1]), shape[-1]
    return head_bytes(format, k) + rows * row_bytes(format, k)
