"""Floats into weight formats: what `formats.dequantize` undoes, up to rounding.

The simplest choice of scales everywhere, so that tests and tiny models exist in every format, and
a model can be quantized while it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anychip.contract.formats import (
    BLOCK_FORMATS,
    PLAIN_FORMATS,
    W8A8,
    block_elements,
    format_bytes,
    grouped,
    head_bytes,
    is_quantized,
)
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.formats import (
    KNOWN,
    Bytes,
    Floats,
    convert,
    dequantize,
    pieces,
    plain_weight,
)
from anychip.model.packing import blocks, codebooks, k_encode
from anychip.model.packing.grouped import encode_grouped
from anychip.model.packing.int8 import NORMED, encode_int8


def quantize(values: Floats, format: str) -> HostWeight:
    """float32 values [.., K] in any weight format, each element at the nearest step of its block.

    "w8a8_static" is written for normed activations. Raises UnsupportedModel for an unknown format,
    CheckpointError where K does not fill blocks.
    """
    if format in PLAIN_FORMATS:
        return plain_weight(values, format)
    if not is_quantized(format):
        raise unsupported("weight format", format, KNOWN)
    columns, elements = values.shape[-1], block_elements(format)
    if columns % elements:
        raise CheckpointError(
            f"rows of {columns} elements do not fill blocks of {elements} ({format})"
        )
    rows = np.ascontiguousarray(values, np.float32).reshape(-1, columns)
    raw = np.ascontiguousarray(_encoded(rows, format)).reshape(-1)
    return HostWeight(format, tuple(values.shape), raw.data.toreadonly())


def into_format(
    weight: HostWeight, format: str, read: Callable[[int], object] = lambda nbytes: None
) -> HostWeight:
    """The weight in another format, which may be plain; itself where it has that already.

    Some rows at a time, as `convert` has it, which `read` and the errors are explained at. Raises
    besides what `quantize` raises, and CheckpointError where a value is none that a scale could be
    found for: infinite, or not a number.
    """
    if format in PLAIN_FORMATS:
        return convert(weight, format, read)
    if weight.format == format:
        return weight
    if head_bytes(format, weight.shape[-1]):  # which all rows have to be known for
        return quantize(dequantize(weight), format)
    raw, first = np.empty(format_bytes(format, weight.shape), np.uint8), 0
    for piece in pieces(weight):
        values = dequantize(piece)
        if not np.isfinite(values).all():
            raise CheckpointError(
                f"has values that are infinite or not a number, which {format} has no scale for"
            )
        rows = np.frombuffer(quantize(values, format).data, np.uint8)
        raw[first : first + rows.size] = rows
        first += rows.size
        read(piece.data.nbytes)
    return HostWeight(format, weight.shape, raw.data.toreadonly())


def _encoded(rows: Floats, format: str) -> Bytes:
    if format in BLOCK_FORMATS:
        return _ENCODE[format](rows.reshape(-1, BLOCK_FORMATS[format][0]))
    kind = grouped(format)
    if kind:
        return encode_grouped(kind, rows)
    return encode_int8(rows, NORMED if format == W8A8[1] else None)


_ENCODE: dict[str, Callable[[Floats], Bytes]] = {
    "q8_0": blocks.encode_q8_0,
    "q4_0": blocks.encode_q4_0,
    "q4_1": blocks.encode_q4_1,
    "q5_0": blocks.encode_q5_0,
    "q5_1": blocks.encode_q5_1,
    "iq4_nl": codebooks.encode_iq4_nl,
    "mxfp4": codebooks.encode_mxfp4,
    "q2_k": k_encode.encode_q2_k,
    "q3_k": k_encode.encode_q3_k,
    "q4_k": k_encode.encode_q4_k,
    "q5_k": k_encode.encode_q5_k,
    "q6_k": k_encode.encode_q6_k,
}
