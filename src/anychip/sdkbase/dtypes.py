"""Element types as numpy has them: for what is converted or compared on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from anychip.contract.dtype import DType

NUMPY: Mapping[DType, np.dtype[Any]] = {
    dtype: np.dtype(ml_dtypes.bfloat16 if dtype is DType.BFLOAT16 else dtype.value)
    for dtype in DType
}
