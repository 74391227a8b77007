"""MXFP4 as GPT-OSS has it: experts' weights in blocks of 32 with a power of two for a scale.

`X_blocks` uint8 [E, N, K / 32, 16], the even element of a pair in the low nibble; `X_scales` uint8
[E, N, K / 32]. They become `X` [E, N, K] in ggml's order: elements 0..15 of a block in the low
nibbles, 16..31 in the high ones, after the scale's byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anychip.contract.weights import HostWeight
from anychip.model.formats import dequantize
from anychip.model.packing.fields import nibbles, packed_nibbles
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
    blocks = pieces.entry(_BLOCKS, ("U8",)).shape
    if len(blocks) < 3 or blocks[-1] != 16 or not all(blocks):
        raise pieces.error(_BLOCKS, f"has shape {blocks}, (.., N, K / 32, 16) is needed")
    pieces.shaped(_SCALES, ("U8",), blocks[:-1])
    shape = (*blocks[:-2], blocks[-2] * 32)

    def exact() -> HostWeight:
        pairs = nibbles(pieces.array(_BLOCKS).reshape(-1, 16)).reshape(-1, 2, 16)
        codes = pairs.swapaxes(1, 2).reshape(-1, 32)  # low and high of each byte: 2i, 2i + 1
        scales = pieces.array(_SCALES).reshape(-1, 1)
        raw = np.hstack([scales, packed_nibbles(codes)]).reshape(-1)
        return HostWeight("mxfp4", shape, raw.data.toreadonly())

    tensors, nbytes = pieces.names(_BLOCKS, _SCALES), pieces.nbytes(_BLOCKS, _SCALES)
    return Linear("mxfp4", shape, tensors, nbytes, exact, lambda: dequantize(exact()))
