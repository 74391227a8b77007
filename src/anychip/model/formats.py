"""Weight formats on the host: to float32, and between plain dtypes."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.formats import BLOCK_FORMATS, PLAIN_FORMATS
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.mapped import SUPPORTED_FORMATS, format_nbytes

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_NUMPY: dict[str, npt.DTypeLike] = {
    DType.FLOAT32.value: np.float32,
    DType.FLOAT16.value: np.float16,
    DType.BFLOAT16.value: ml_dtypes.bfloat16,
}


def dequantize(weight: HostWeight) -> Floats:
    """The weight in float32, of its own shape. Exact for plain dtypes; block formats as ggml's.

    Raises UnsupportedModel for an unknown format, CheckpointError where bytes and shape disagree.
    """
    if weight.format not in SUPPORTED_FORMATS:
        raise unsupported("weight format", weight.format, SUPPORTED_FORMATS)
    needed = format_nbytes(weight.format, weight.shape)
    raw = np.frombuffer(weight.data, np.uint8)
    if len(raw) != needed:
        raise CheckpointError(
            f"{weight.format} {weight.shape} needs {needed} bytes, has {len(raw)}"
        )
    if weight.format in BLOCK_FORMATS:
        blocks = raw.reshape(-1, BLOCK_FORMATS[weight.format][1])
        return _BLOCKS[weight.format](blocks).reshape(weight.shape)
    return _plain(raw, weight.format).reshape(weight.shape)


def convert(weight: HostWeight, format: str) -> HostWeight:
    """The weight in a plain dtype, rounded to nearest even; itself where it has that already.

    Raises CheckpointError where a finite value is beyond the range of float16.
    """
    if format not in PLAIN_FORMATS:
        raise unsupported("target format", format, PLAIN_FORMATS)
    if weight.format == format:
        return weight
    return plain_weight(dequantize(weight), format)


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


def _plain(raw: Bytes, format: str) -> Floats:
    if format == DType.BFLOAT16.value:  # the upper half of a float32; faster than a cast
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view(_NUMPY[format]).astype(np.float32)


def _scales(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block: float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """16 bytes a block -> 32 values 0..15: low nibbles, then high ones."""
    values = np.empty((len(packed), 32), np.float32)
    values[:, :16] = packed & 15
    values[:, 16:] = packed >> 4
    return values


def _q8_0(blocks: Bytes) -> Floats:
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    values *= _scales(blocks, 0)
    return values


def _q4_0(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 2:])
    values -= 8
    values *= _scales(blocks, 0)
    return values


def _q4_1(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 4:])
    values *= _scales(blocks, 0)
    values += _scales(blocks, 2)
    return values


_BLOCKS: dict[str, Callable[[Bytes], Floats]] = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1}
