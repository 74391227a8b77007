"""Weights that a file has as [K, N], for x @ w, where the network wants [N, K]."""

from __future__ import annotations

import numpy as np

from anychip.contract.formats import PLAIN_FORMATS, row_bytes
from anychip.contract.weights import HostWeight
from anychip.model.errors import unsupported


def transposed_rows(weight: HostWeight, rows: tuple[int, int] | None) -> HostWeight:
    """Rows of a plain weight [.., K, N] that stands for [.., N, K]: a copy, [rows, K] or all of it.

    rows: (first, count), of one matrix. Raises UnsupportedModel for a format whose elements lie in
    blocks along K.
    """
    if weight.format not in PLAIN_FORMATS:
        raise unsupported("format of a weight that lies transposed", weight.format, PLAIN_FORMATS)
    values = np.frombuffer(weight.data, f"V{row_bytes(weight.format, 1)}").reshape(weight.shape)
    values = values.swapaxes(-1, -2)
    if rows is not None:
        matrix, first = divmod(rows[0], values.shape[-2])
        values = values.reshape(-1, *values.shape[-2:])[matrix, first : first + rows[1]]
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data.toreadonly()
    return HostWeight(weight.format, values.shape, data)
