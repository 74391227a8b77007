"""Element types that cross the boundary."""

from __future__ import annotations

from enum import Enum


class DType(str, Enum):
    """An element type; its value is the name used in flags, logs and dtype rows."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT32 = "int32"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"
    FLOAT8_E4M3 = "float8_e4m3"

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether activations may have this type."""
        return self in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)

    @property
    def is_scaled(self) -> bool:
        """Whether a cache holds it with a scale beside each vector: of a byte an element."""
        return self in (DType.INT8, DType.FLOAT8_E4M3)

    def __str__(self) -> str:
        return self.value


_ITEMSIZE = {
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.INT32: 4,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.BOOL: 1,
    DType.FLOAT8_E4M3: 1,
}
