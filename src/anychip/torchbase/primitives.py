"""Primitives but those of ordering.py: computed in float32 and rounded when they are stored."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs, values
from anychip.torchbase.views import widest


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "neg": torch.neg,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu_tanh": _gelu_tanh,
    "abs": torch.abs,
    "round": torch.round,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
}
REDUCE: dict[str, Callable[..., torch.Tensor]] = {
    "reduce_sum": torch.sum,
    "reduce_max": torch.amax,
    "reduce_min": torch.amin,
    "reduce_mean": torch.mean,
}


def _unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    def kernel(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
        outputs["y"].copy_(function(values(inputs["x"])))

    return kernel


def _binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Kernel:
    def kernel(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
        outputs["y"].copy_(function(values(inputs["a"]), values(inputs["b"])))

    return kernel


def _reduce(function: Callable[..., torch.Tensor]) -> Kernel:
    def kernel(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
        outputs["y"].copy_(function(values(inputs["x"]), dim=-1, keepdim=True))

    return kernel


def copy(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """A contiguous copy, or (as `cast`) another dtype."""
    outputs["y"].copy_(inputs["x"])


def fill(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One value everywhere."""
    outputs["y"].fill_(attrs["value"])


def arange(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """0, 1, 2, ..."""
    y = outputs["y"]
    y.copy_(torch.arange(attrs["length"], dtype=torch.int32, device=y.device))


def cumsum(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Running sum, of floats as wide as the device can."""
    x = inputs["x"]
    dtype = widest(x.device) if x.is_floating_point() else None
    outputs["y"].copy_(torch.cumsum(x, dim=-1, dtype=dtype))


def where(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One or the other."""
    outputs["y"].copy_(torch.where(inputs["condition"], inputs["a"], inputs["b"]))


def gather_rows(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Rows by index."""
    y = outputs["y"]
    if y.numel():
        y.copy_(torch.index_select(inputs["table"], 0, inputs["index"].flatten()).view(y.shape))


def scatter_rows(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Write rows by index; negative ones are skipped."""
    index, source, target = _kept(inputs)
    if index.numel():
        target.index_copy_(0, index, source)


def scatter_add_rows(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Add rows by index; negative ones are skipped."""
    index, source, target = _kept(inputs)
    if index.numel():
        target.index_add_(0, index, source)


def _kept(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kept = inputs["index"] >= 0
    return inputs["index"][kept].long(), inputs["source"][kept], inputs["target"]


def histogram(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Counts; what lies outside 0 .. bins - 1 is counted in a bin that is dropped."""
    index, bins = inputs["index"].flatten(), attrs["bins"]
    inside = (index >= 0) & (index < bins)
    counts = torch.zeros(bins + 1, dtype=torch.int32, device=index.device)
    counts.index_add_(0, torch.where(inside, index, bins), torch.ones_like(index))
    outputs["y"].copy_(counts[:bins])


def matmul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One product, or (as `batched_matmul`) one for each leading index."""
    a, b = inputs["a"].float(), inputs["b"].float()
    outputs["y"].copy_(torch.matmul(a, b.transpose(-1, -2) if attrs["transpose_b"] else b))


KERNELS: dict[str, Kernel] = {
    "copy": copy,
    "cast": copy,
    "fill": fill,
    "arange": arange,
    "cumsum": cumsum,
    **{name: _unary(function) for name, function in UNARY.items()},
    **{name: _binary(function) for name, function in BINARY.items()},
    "where": where,
    **{name: _reduce(function) for name, function in REDUCE.items()},
    "gather_rows": gather_rows,
    "scatter_rows": scatter_rows,
    "scatter_add_rows": scatter_add_rows,
    "histogram": histogram,
    "matmul": matmul,
    "batched_matmul": matmul,
}
