"""MXFP4 as GPT-OSS has it: experts' weights in blocks of 32 with a power of two for a scale.

`X_blocks` uint8 [E, N, K / 32, 16], the even element of a pair in the low nibble; `X_scales` uint8
[E, N, K / 32]. They become `X` [E, N, K] in ggml's order: elements 0..15 of a block in the low
nibbles, 16..31 in the high ones, after the scale's byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anychip.contract.weights import HostWeight
from anychip.model.formats import dequantize
from anychip.model.packing.fields import Bytes, nibbles, packed_nibbles
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.pieces import Pieces, RawTensors, modules
from anychip.model.quantized.settings import Settings

_TOLD = frozenset(["quant_method", "modules_to_not_convert", "dequantize"])
_BLOCKS, _SCALES = "_blocks", "_scales"


def mxfp4_linears(store: RawTensors, config: Mapping[str, Any]) -> dict[str, Linear]:
    """Every weight that is stored in blocks, under its name without `_blocks`."""
    Settings(config, _TOLD).finish()
    return {m: _linear(Pieces(store, m)) for m in modules(store.tensors, _BLOCKS)}


def _linear(pieces: Pieces) -> Linear:
    blocks_shape = pieces.entry(_BLOCKS, ("U8",)).shape
    if len(blocks_shape) < 3 or blocks_shape[-1] != 16 or not all(blocks_shape):
        raise pieces.error(_BLOCKS, f"has shape {blocks_shape}, (.., N, K / 32, 16) is needed")
    pieces.shaped(_SCALES, ("U8",), blocks_shape[:-1])
    shape = (*blocks_shape[:-2], blocks_shape[-2] * 32)

    def rows(first: int, count: int) -> HostWeight:
        taken = slice(first, first + count)
        blocks = pieces.array(_BLOCKS).reshape(-1, *blocks_shape[-2:])[taken].reshape(-1, 16)
        scales = pieces.array(_SCALES).reshape(-1, blocks_shape[-2])[taken].reshape(-1, 1)
        return HostWeight("mxfp4", (count, shape[-1]), _joined(blocks, scales))

    def exact() -> HostWeight:
        return replace(rows(0, math.prod(shape[:-1])), shape=shape)

    tensors, nbytes = pieces.names(_BLOCKS, _SCALES), pieces.nbytes(_BLOCKS, _SCALES)
    return Linear(
        "mxfp4", shape, tensors, nbytes, exact, lambda: dequantize(exact()), exact_rows=rows
    )


def _joined(blocks: Bytes, scales: Bytes) -> memoryview:
    """ggml's bytes of blocks [.., 16] and their scales [.., 1]."""
    pairs = nibbles(blocks).reshape(-1, 2, 16)
    codes = pairs.swapaxes(1, 2).reshape(-1, 32)  # low and high of each byte: 2i, 2i + 1
    raw = np.hstack([scales, packed_nibbles(codes)]).reshape(-1)
    return raw.data.toreadonly()
