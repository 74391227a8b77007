"""Weight formats on the host: to float32, and between plain dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.formats import (
    BLOCK_FORMATS,
    PLAIN_FORMATS,
    W8A8,
    format_bytes,
    grouped,
    head_bytes,
    is_quantized,
    row_bytes,
)
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.packing import blocks, codebooks, k_quants
from anychip.model.packing.fields import Bytes as Bytes
from anychip.model.packing.fields import Floats as Floats
from anychip.model.packing.grouped import decode_grouped
from anychip.model.packing.int8 import decode_int8

_AT_ONCE = 1 << 24
"""Elements that are converted at once: what they take in float32 beside the result is bounded."""

KNOWN = (*PLAIN_FORMATS, *BLOCK_FORMATS, *W8A8, "u4g128 and the like")
"""As messages name them."""

_NUMPY: dict[str, npt.DTypeLike] = {
    DType.FLOAT32.value: np.float32,
    DType.FLOAT16.value: np.float16,
    DType.BFLOAT16.value: ml_dtypes.bfloat16,
}


def dequantize(weight: HostWeight) -> Floats:
    """The weight in float32, of its own shape. Exact for plain dtypes; block formats as ggml's.

    Raises UnsupportedModel for an unknown format, CheckpointError where bytes and shape disagree.
    """
    if weight.format not in PLAIN_FORMATS and not is_quantized(weight.format):
        raise unsupported("weight format", weight.format, KNOWN)
    try:
        needed = format_bytes(weight.format, weight.shape)
        raw = np.frombuffer(weight.data, np.uint8)
        if len(raw) != needed:
            raise CheckpointError(
                f"{weight.format} {weight.shape} needs {needed} bytes, has {len(raw)}"
            )
        return _values(raw, weight).reshape(weight.shape)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{weight.format} {weight.shape}: {error}") from error


def convert(weight: HostWeight, format: str) -> HostWeight:
    """The weight in a plain dtype, rounded to nearest even; itself where it has that already.

    Raises CheckpointError where a finite value is beyond the range of float16.
    """
    if format not in PLAIN_FORMATS:
        raise unsupported("target format", format, PLAIN_FORMATS)
    if weight.format == format:
        return weight
    rows = math.prod(weight.shape[:-1])
    step = max(1, _AT_ONCE // max(1, weight.shape[-1] if weight.shape else 1))
    if rows <= step:
        return plain_weight(dequantize(weight), format)
    slices = (rows_of(weight, at, min(step, rows - at)) for at in range(0, rows, step))
    raw, at = np.empty(format_bytes(format, weight.shape), np.uint8), 0
    for part in (plain_weight(dequantize(found), format) for found in slices):
        raw[at : at + part.data.nbytes] = part.data
        at += part.data.nbytes
    return HostWeight(format, weight.shape, raw.data.toreadonly())


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


def plain_weight(values: Floats, format: str = DType.FLOAT32.value) -> HostWeight:
    """A HostWeight of float32 values in a plain dtype, rounded to nearest even."""
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(values).astype(_NUMPY[format], copy=False)
    if format == DType.FLOAT16.value:
        lost = int(np.count_nonzero(np.isinf(cast) & np.isfinite(values)))
        if lost:
            raise CheckpointError(
                f"{lost} values are beyond float16's range of 65504; use bfloat16 or float32"
            )
    data = cast.view(np.uint8).reshape(-1).data.toreadonly()
    return HostWeight(format, tuple(values.shape), data)


def _values(raw: Bytes, weight: HostWeight) -> Floats:
    if weight.format in BLOCK_FORMATS:
        return _DECODE[weight.format](raw.reshape(-1, BLOCK_FORMATS[weight.format][1]))
    if weight.format in W8A8:
        return decode_int8(raw, weight.shape[-1], static=weight.format == "w8a8_static")
    kind = grouped(weight.format)
    if kind:
        return decode_grouped(kind, raw, weight.shape[-1])
    return _plain(raw, weight.format)


def _plain(raw: Bytes, format: str) -> Floats:
    if format == DType.BFLOAT16.value:  # the upper half of a float32; faster than a cast
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view(_NUMPY[format]).astype(np.float32)


_DECODE: dict[str, Callable[[Bytes], Floats]] = {
    "q8_0": blocks.decode_q8_0,
    "q4_0": blocks.decode_q4_0,
    "q4_1": blocks.decode_q4_1,
    "q5_0": blocks.decode_q5_0,
    "q5_1": blocks.decode_q5_1,
    "iq4_nl": codebooks.decode_iq4_nl,
    "mxfp4": codebooks.decode_mxfp4,
    "q2_k": k_quants.decode_q2_k,
    "q3_k": k_quants.decode_q3_k,
    "q4_k": k_quants.decode_q4_k,
    "q5_k": k_quants.decode_q5_k,
    "q6_k": k_quants.decode_q6_k,
}
