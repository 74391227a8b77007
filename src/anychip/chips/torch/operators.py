"""What is computed in by preference: the operators themselves are torchbase's."""

from __future__ import annotations

from anychip.contract.dtype import DType

NARROW_FIRST = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)
WIDE_FIRST = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)


def activation_dtypes(device_type: str) -> tuple[DType, ...]:
    """Preferred first. Processors have few narrow instructions, accelerators are made of them."""
    return WIDE_FIRST if device_type in ("cpu", "mps") else NARROW_FIRST
