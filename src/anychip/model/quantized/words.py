"""Small unsigned numbers out of the 32-bit words that GPTQ, AWQ and compressed-tensors keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anychip.model.formats import Bytes


def unpack_words(words: npt.NDArray[Any], bits: int) -> Bytes:
    """int32 [rows, words] -> [rows, words * 32 / bits] numbers; the lowest bits come first."""
    rows = np.ascontiguousarray(words, "<i4").view(np.uint8)
    if bits == 8:
        return rows
    out = np.empty((rows.shape[0], 2 * rows.shape[1]), np.uint8)
    out[:, 0::2] = rows & 15
    out[:, 1::2] = rows >> 4
    return out
