"""Weights that a file has as [K, N], for x @ w, where the network wants [N, K]."""

from __future__ import annotations

import numpy as np

from anychip.contract.formats import PLAIN_FORMATS, row_bytes
from anychip.contract.weights import HostWeight
from anychip.model.errors import unsupported
from anychip.model.formats import dequantize, plain_weight
from anychip.model.rows import rows_of


def transposed_rows(
    weight: HostWeight, rows: tuple[int, int] | None, *, constant: bool = False
) -> HostWeight:
    """Rows of a weight [.., K, N] that stands for [.., N, K]: a copy, [rows, K] or all of it.

    rows: (first, count), of one matrix. constant: any format will do, and the copy is float32
    where elements lie in blocks; else UnsupportedModel for such a format, whose blocks would have
    to lie along K.
    """
    if weight.format not in PLAIN_FORMATS and not constant:
        raise unsupported("format of a weight that lies transposed", weight.format, PLAIN_FORMATS)
    first = 0
    if rows is not None:
        depth, width = weight.shape[-2:]
        matrix, first = divmod(rows[0], width)
        weight = rows_of(weight, matrix * depth, depth)
    if weight.format not in PLAIN_FORMATS:
        weight = plain_weight(dequantize(weight))
    values = np.frombuffer(weight.data, f"V{row_bytes(weight.format, 1)}").reshape(weight.shape)
    values = values.swapaxes(-1, -2)
    if rows is not None:
        values = values[first : first + rows[1]]
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data.toreadonly()
    return HostWeight(weight.format, values.shape, data)
