"""Some rows of a weight, whatever its format. No numpy: readers of headers alone come here too."""

from __future__ import annotations

from anychip.contract.formats import head_bytes, row_bytes
from anychip.contract.weights import HostWeight


def rows_of(weight: HostWeight, first: int, count: int) -> HostWeight:
    """Some rows of a weight [..., K], all but its last dimension counted as rows: [count, K].

    A view; a copy in formats that have something before the first row, which then comes along.
    """
    k = weight.shape[-1]
    head, row = head_bytes(weight.format, k), row_bytes(weight.format, k)
    data = weight.data[head + first * row : head + (first + count) * row]
    if head:
        data = memoryview(b"".join((weight.data[:head], data)))
    return HostWeight(weight.format, (count, k), data)
