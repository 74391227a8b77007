"""Matrix products whose rows do not depend on their neighbours.

A matrix library picks its kernel by the number of rows, and kernels add up in different orders;
some even treat the rows of one call differently. So rows are multiplied `tile_rows` at a time,
padded with zeros: one shape, one kernel. How many rows a kernel treats alike is found by trial
for each shape, once a process; one row at a time is always right. What this rests on: a library
that does the same for the same shape, whatever the values (tests/hostops checks it bitwise).
`exact_product` sums in float64 and rounds once: regrouping a sum, by zeros in between or another
offset, then changes a float32 result only within 2**-52 of a rounding border.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from anychip.hostops.views import Array, Floats

ROWS = 16
TRIALS = 8
PANEL = 1024  # output columns at a time: bounds the float32 copy of a narrower weight


@cache
def tile_rows(columns: int, inner: int, by_column: bool) -> int:
    """Rows of one call that the library treats bit by bit alike, a divisor of ROWS.

    For a product [rows, inner] @ [inner, columns]; by_column: each column of the second factor
    is contiguous (its transpose is row-major), otherwise each row is.
    """
    source = np.random.default_rng(columns * inner)
    trials = source.standard_normal((TRIALS, 1, inner)).astype(np.float32)
    matrix = source.standard_normal((columns, inner)).astype(np.float32).T
    right = matrix if by_column else np.ascontiguousarray(matrix)
    for count in (ROWS, ROWS // 2, ROWS // 4):
        results = (np.repeat(row, count, axis=0) @ right for row in trials)
        if all((result == result[:1]).all() for result in results):
            return count
    return 1


def rows_by_matrix(x: Array, matrix: Array) -> Floats:
    """x [T, K] @ matrix[N, K].T in float32 -> [T, N]."""
    tokens, columns = x.shape[0], matrix.shape[0]
    padded = -(-tokens // ROWS) * ROWS
    rows = np.zeros((padded, x.shape[1]), np.float32)
    rows[:tokens] = x
    result = np.empty((padded, columns), np.float32)
    for first in range(0, columns, PANEL):
        panel = np.ascontiguousarray(matrix[first : first + PANEL], dtype=np.float32)
        step = tile_rows(panel.shape[0], panel.shape[1], True)
        for row in range(0, tokens, step):
            result[row : row + step, first : first + PANEL] = rows[row : row + step] @ panel.T
    return result[:tokens]


def rows_by_matrices(x: Floats, matrices: Floats) -> Floats:
    """x [..., M, K] @ matrices [..., K, N], M a multiple of ROWS; leading sizes broadcast.

    Either the matrices or their transposes are row-major.
    """
    inner, columns = matrices.shape[-2:]
    by_column = matrices.strides[-2] == matrices.itemsize
    step = tile_rows(columns, inner, by_column)
    tiles = x.reshape(*x.shape[:-2], -1, step, inner) @ matrices[..., None, :, :]
    result: Floats = tiles.reshape(*tiles.shape[:-3], -1, columns)
    return result


def exact_product(a: Array, b: Array) -> Floats:
    """a [..., M, K] @ b [..., K, N], summed in float64, rounded to float32."""
    wide: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return wide.astype(np.float32)
