"""Vectorized numpy operators that a chip may borrow; never the oracle.

Guaranteed: the result of a token does not depend on how many others share its call, on where it
stands among them, on the chunk that it came in or on the page size: bit by bit, except for
`batched_matmul`, where sums regroup in float64. `matrix.py` says what that asks of the matrix
library under numpy, `attention.py` how attention keeps it.
"""

from anychip.hostops.attention import CacheArrays
from anychip.hostops.implementations import table
from anychip.hostops.views import NUMPY_DTYPES, array_view, dtype_of

__all__ = ["NUMPY_DTYPES", "CacheArrays", "array_view", "dtype_of", "table"]
