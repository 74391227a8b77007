"""Vectors held in one byte an element, each with the four bytes of its float32 scale behind it.

They are read and written as bytes: few devices index elements of float8. What a scale is stands in
docs/formats.md; NaN is that of a vector with an infinity or a NaN.
"""

from __future__ import annotations

import torch

from anychip.contract.cache import SCALE_BYTES
from anychip.contract.dtype import DType

SCALED_DTYPES: dict[DType, torch.dtype] = {
    DType.INT8: torch.int8,
    DType.FLOAT8_E4M3: torch.float8_e4m3fn,
}
_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def packed(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Vectors [..., D] of floats as they are held: bytes [..., D + SCALE_BYTES]."""
    x, most = rows.float(), _LARGEST[dtype]
    scale = x.abs().amax(dim=-1, keepdim=True) / most
    scale = scale.masked_fill(~x.isfinite().all(dim=-1, keepdim=True), torch.nan)
    steps = torch.where(scale > 0, x / scale, 0.0).clamp(-most, most)
    if not dtype.is_floating_point:
        steps = steps.round()
    elements = steps.to(dtype).contiguous().view(torch.uint8)
    return torch.cat([elements, scale.contiguous().view(torch.uint8)], dim=-1)


def values(held: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What bytes [..., D + SCALE_BYTES] stand for: [..., D] in float32."""
    scale = held[..., -SCALE_BYTES:].contiguous().view(torch.float32)
    return held[..., :-SCALE_BYTES].contiguous().view(dtype).float() * scale
