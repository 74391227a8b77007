"""Weight formats on the host: to float32, and between plain dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

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
)
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.packing import blocks, codebooks, k_quants
from anychip.model.packing.fields import Bytes as Bytes
from anychip.model.packing.fields import Floats as Floats
from anychip.model.packing.grouped import decode_grouped
from anychip.model.packing.int8 import decode_int8

KNOWN = (*PLAIN_FORMATS, *BLOCK_FORMATS, *W8A8, "u4g128 and the like")
"""As messages name them."""

STEP_BYTES = 256 << 10
"""Bytes of float32 that a conversion holds at once. They stay in a processor's cache, and in memory
that the allocator keeps; larger ones come fresh from the system, which costs more than the work."""

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


def convert(
    weight: HostWeight, format: str, read: Callable[[int], object] = lambda nbytes: None
) -> HostWeight:
    """The weight in a plain dtype, rounded to nearest even; itself where it has that already.

    Some rows at a time: beside the result no more than `STEP_BYTES` of float32 are held.
    read: told the bytes of the weight that were read and are not needed again.
    Raises CheckpointError where a finite value is beyond the range of float16.
    """
    if format not in PLAIN_FORMATS:
        raise unsupported("target format", format, PLAIN_FORMATS)
    if weight.format == format:
        return weight
    flat = np.empty(math.prod(weight.shape), _NUMPY[format])
    first = lost = 0
    for piece in pieces(weight):
        values = dequantize(piece).reshape(-1)
        rows = flat[first : first + values.size]
        with np.errstate(over="ignore"):
            rows[...] = values
        lost += _lost(rows, values)
        first += values.size
        read(piece.data.nbytes)
    _refuse_lost(lost)
    return HostWeight(format, weight.shape, flat.view(np.uint8).data.toreadonly())


def pieces(weight: HostWeight) -> Iterator[HostWeight]:
    """The weight in rows, as many at once as have `STEP_BYTES` in float32; views.

    Whole where something stands before its first row, or where bytes and shape disagree.
    """
    shape = weight.shape
    rows, k = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    step = max(STEP_BYTES // (4 * max(k, 1)), 1)
    known = weight.format in PLAIN_FORMATS or is_quantized(weight.format)
    if rows <= step or not known or head_bytes(weight.format, k):
        yield weight
        return
    nbytes = weight.data.nbytes // rows
    if nbytes * rows != weight.data.nbytes:
        yield weight
        return
    for first in range(0, rows, step):
        count = min(step, rows - first)
        data = weight.data[first * nbytes : (first + count) * nbytes]
        yield HostWeight(weight.format, (count, k), data)


def plain_weight(values: Floats, format: str = DType.FLOAT32.value) -> HostWeight:
    """A HostWeight of float32 values in a plain dtype, rounded to nearest even."""
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(values).astype(_NUMPY[format], copy=False)
    _refuse_lost(_lost(cast, values))
    data = cast.view(np.uint8).reshape(-1).data.toreadonly()
    return HostWeight(format, tuple(values.shape), data)


def _lost(cast: npt.NDArray[Any], values: Floats) -> int:
    """Finite values that have become infinite."""
    if cast.dtype != np.float16:
        return 0
    return int(np.count_nonzero(np.isinf(cast) & np.isfinite(values)))


def _refuse_lost(count: int) -> None:
    if count:
        raise CheckpointError(
            f"{count} values are beyond float16's range of 65504; use bfloat16 or float32"
        )


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
