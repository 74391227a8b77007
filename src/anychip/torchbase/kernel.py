"""What a kernel is: torch views in, results stored into the views of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Inputs = Mapping[str, Any]
Outputs = Mapping[str, torch.Tensor]
Attrs = Mapping[str, Any]
Kernel = Callable[[Inputs, Outputs, Attrs], None]
"""The work of one launch, on the device's current stream."""


def values(x: torch.Tensor) -> torch.Tensor:
    """Floats as float32, anything else as it is."""
    return x.float() if x.is_floating_point() else x
