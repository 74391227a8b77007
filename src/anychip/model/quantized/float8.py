"""8-bit floats with scales: per tensor, per row, or per block of rows and columns.

No contract format holds these, so that they are converted at load. x = scale * q with q an e4m3:
a sign, four bits of exponent with bias 7, three of mantissa, no infinity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from anychip.contract.tensor import Shape
from anychip.model.errors import CheckpointError
from anychip.model.formats import Floats
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.pieces import SCALE_DTYPES, Pieces, RawTensors, modules
from anychip.model.quantized.settings import ORIGIN, Settings

E4M3 = "F8_E4M3"
_TOLD = frozenset(["quant_method", "modules_to_not_convert", "ignored_layers", "scale_fmt"])
_SCALES = (".weight_scale_inv", ".weight_scale")
"""What the scale is called; both are multiplied by."""


def fp8_linears(store: RawTensors, config: Mapping[str, Any]) -> dict[str, Linear]:
    """Linears of `quant_method: fp8`: blocks as DeepSeek and Qwen write, or one scale a tensor.

    How activations would be rounded (activation_scheme) does not matter: the weight is converted,
    its activations are not rounded.
    """
    settings = Settings(config, _TOLD)
    settings.choice("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
    settings.choice("activation_scheme", ("dynamic", "static"), "dynamic")
    block = _block(settings.raw("weight_block_size"))
    settings.finish()
    found = {}
    for module in modules(store.tensors, ".weight"):
        if store.tensors[f"{module}.weight"].format == E4M3:
            pieces = Pieces(store, module)
            ending = next((e for e in _SCALES if pieces.has(e)), _SCALES[0])
            found[f"{module}.weight"] = fp8_linear(pieces, ending, block)
    return found


def fp8_linear(pieces: Pieces, ending: str, block: tuple[int, int] | None) -> Linear:
    """One linear of e4m3. ending: of its scale. block: rows and columns that share one, if any."""
    shape = n, k = pieces.matrix(".weight", (E4M3,))
    shapes: tuple[Shape, ...] = ((), (1,), (1, 1), (n, 1), (n,))
    if block is not None:
        shapes = ((-(-n // block[0]), -(-k // block[1])),)
    scales = pieces.shaped(ending, SCALE_DTYPES, *shapes).shape
    endings = (".weight", ending, ".input_scale", ".activation_scale")

    def plain() -> Floats:
        values: Floats = e4m3()[pieces.array(".weight")]
        _scale(values, pieces.floats(ending), block)
        return values

    kind = "per tensor" if math.prod(scales) == 1 else "per channel"
    name = f"fp8 {kind}" if block is None else f"fp8 in {block[0]}x{block[1]} blocks"
    tensors, nbytes = pieces.names(*endings), pieces.nbytes(*endings)
    return Linear(name, shape, tensors, nbytes, None, plain)


def e4m3() -> Floats:
    """The 256 numbers of e4m3 by their bytes."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, (byte & 7) / 8
    size = np.where(exponent > 0, np.ldexp(1 + mantissa, exponent - 7), np.ldexp(mantissa, -6))
    size[(byte & 127) == 127] = np.nan
    return np.where(byte < 128, size, -size).astype(np.float32)


def _scale(values: Floats, scales: Floats, block: tuple[int, int] | None) -> None:
    """Multiply in place, the rows of one block at a time."""
    if block is None:
        values *= scales.reshape(-1, 1)
        return
    for i, row in enumerate(scales):
        spread = np.repeat(row, min(block[1], values.shape[1]))[: values.shape[1]]
        values[i * block[0] : (i + 1) * block[0]] *= spread


def _block(found: Any) -> tuple[int, int] | None:
    if found is None:
        return None
    sound = isinstance(found, list) and len(found) == 2 and all(type(v) is int for v in found)
    if not sound or min(found) < 1:
        raise CheckpointError(f"{ORIGIN}: 'weight_block_size' is {found!r:.60}, not two sizes")
    return found[0], found[1]
