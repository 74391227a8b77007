"""Element types as numpy has them: for what is converted or compared on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from anychip.contract.dtype import DType

_NOT_OF_NUMPY = {
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT8_E4M3: ml_dtypes.float8_e4m3fn,
}
NUMPY: Mapping[DType, np.dtype[Any]] = {
    dtype: np.dtype(_NOT_OF_NUMPY.get(dtype, dtype.value)) for dtype in DType
}
